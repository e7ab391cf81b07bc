"""How old the last rotation of each shard is, as far as this process has measured it by its monotonic clock.

No clock of a server says so for sure: it may be set, and a replica that is promoted has another one. What a
ticker has measured itself is so. Each one tells what it has when it looks after a shard, the shard keeps the
most that it has learned (lua/ledger/tick/rotate.lua), and goes on from there with the next ticker.
"""

import time


class Ages:
    """For each shard that was looked after, a rotation and since when it was made at the latest.

    A pickled copy starts with none: the monotonic clock of another machine tells another time.
    """

    def __init__(self) -> None:
        self._since: dict[int, tuple[bytes, float]] = {}

    def of(self, shard: int) -> tuple[bytes, int] | None:
        """The stamp of the last rotation known, and ms since then at least; None for a new shard."""
        known = self._since.get(shard)
        return None if known is None else (known[0], int((time.monotonic() - known[1]) * 1000))

    def learn(self, shard: int, stamp: bytes, age: int) -> None:
        """Takes what a shard has just answered: the stamp of its last rotation, and its age in ms."""
        since = time.monotonic() - age / 1000
        known = self._since.get(shard)
        if known is not None and known[0] == stamp:
            since = min(since, known[1])  # no round trip is lost
        self._since[shard] = stamp, since

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, _: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]
