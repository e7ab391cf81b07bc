"""The truth of a history of the model: the work that was done, and what that makes of each tree."""

from dataclasses import dataclass, field

from tests.helpers.models.external.stream import Row


class Violation(Exception):
    """Something that must not happen. Its first word is the kind."""


@dataclass(eq=False)
class Done:
    """The work of a process on a row, or of the source on a record.

    row: None of the source. tracked: the trees that the process saw of the row. made: the rows that it made,
    and their stream. flushed: it came to its flush with all of them. failed: the row has failed.
    """

    row: Row | None
    slot: int
    tracked: tuple[int, ...]
    made: list[tuple[str, Row]] = field(default_factory=list)
    flushed: bool = False
    failed: bool = False


class Truth:
    """The work that was done. slots: of each stream.

    lost: tokens of segments that lost a row. sent: places of segments that were emitted, with their trees.
    deaf: places whose rows a reader was told are over. completed: the record of each tree whose source came
    to the end of its flush, and the rotations meanwhile. undelivered: trees of rows that were not delivered.
    """

    def __init__(self, slots: dict[str, tuple[int, ...]]) -> None:
        self.slots = slots
        self.roots: dict[int, Done] = {}
        self.works: dict[tuple[str, int], list[Done]] = {}
        self.lost: set[str] = set()
        self.sent: dict[tuple[int, str, int], tuple[int, ...]] = {}
        self.acked: set[tuple[int, str, int]] = set()
        self.deaf: set[tuple[int, str, int]] = set()
        self.completed: dict[int, int] = {}
        self.undelivered: set[int] = set()

    def add(self, work: Done) -> None:
        """Adds the work on a row, or on the record of trees."""
        if work.row is None:
            self.roots.update(dict.fromkeys(work.tracked, work))
        else:
            self.works.setdefault(work.row.same, []).append(work)

    def check_acked(self, anchor: int) -> None:
        """Raises Violation if a tree is acked before all that was made of its record was worked on."""
        root = self.roots[anchor]
        if not root.flushed:
            raise Violation(f"tree {anchor} is acked, though its source did not come to its flush")
        for stream, row in root.made:
            if anchor in row.anchors and not self.is_done(stream, row, anchor):
                raise Violation(f"tree {anchor} is acked, though {row.same} of {stream} was not worked on")

    def is_done(self, stream: str, row: Row, anchor: int) -> bool:
        """True if each subscription has worked on a row, and on what was made of it."""
        return all(
            any(self._whole(work, anchor) for work in self.works.get(row.same, ()) if work.slot == slot)
            for slot in self.slots[stream]
        )

    def _whole(self, work: Done, anchor: int) -> bool:
        if not work.flushed or work.failed or anchor not in work.tracked:
            return False
        return all(self.is_done(to, row, anchor) for to, row in work.made if anchor in row.anchors)

    def may_fail(self) -> set[int]:
        """The trees that have a reason to fail: of rows that failed, and were sent."""
        sent = {token for _, token, _ in self.sent}
        failing = set(self.undelivered)
        for (token, _), works in self.works.items():
            for work in works if token in sent else ():
                failing |= set(work.tracked) if work.failed else set()
        return failing

    def excused(self) -> set[int]:
        """The trees of segments that lost a row."""
        return {anchor for place, trees in self.sent.items() if place[1] in self.lost for anchor in trees}
