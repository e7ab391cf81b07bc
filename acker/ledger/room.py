"""How much streams may still hold, as this process saw it a moment ago: few commits need a look at that."""

from time import monotonic

_SECONDS = 0.25
"""How long what was seen counts: others write meanwhile."""
_SHARE = 4
"""Of the room that was seen, a process takes one part in so many before it looks again."""
_STREAMS = 1_000


class Room:
    """For streams that were looked at, when that was, and how many bytes may be written before the next look.

    A pickled copy starts with none: the monotonic clock of another machine tells another time.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def take(self, stream: str, size: int) -> bool:
        """Takes room for so many bytes; False where somebody has to look."""
        at, left = self._seen.get(stream, (0.0, -1))
        if size > left or monotonic() - at > _SECONDS:
            return False
        self._seen[stream] = at, left - size
        return True

    def see(self, stream: str, left: int) -> None:
        """Notes that a stream has room for so many bytes."""
        if len(self._seen) >= _STREAMS:
            self._seen.clear()
        self._seen[stream] = monotonic(), left // _SHARE

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
