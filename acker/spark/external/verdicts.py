"""The sent segments, whose rows a sink has, by what the tasks of a write have reported.

The segments sent are all that were reported, over all own partitions and stages: a stage that runs again, or
a second evaluation, reports again. An own partition with two lists of segments has rows in the sink that
nobody can tell from rows that were thrown away. So has a write that does not report each own partition.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acker.errors import AckerError
from acker.spark.external.reports import Report


class TwoLists(AckerError):
    """An own partition has reported two lists of segments."""


def lists(reports: Iterable[Report], stream: str) -> dict[int, Report]:
    """The report of each own partition. Raises TwoLists."""
    by_partition = dict[int, Report]()
    for report in reports:
        before = by_partition.setdefault(report.own, report)
        if before.segments != report.segments:
            raise TwoLists(
                f"the rows for stream {stream!r} were evaluated more than once, with other rows in partition "
                f"{report.own}, so acker cannot tell which of them the sink has: nothing of the batch takes "
                "effect, and its next run persists the rows of this stream. To do that from the beginning: "
                "collector.emit(..., persist=True)"
            )
    return by_partition


def is_whole(reported: Sequence[int] | dict[int, Report], count: int | None) -> bool:
    """True if each own partition has reported: 0 to `count` - 1, or more."""
    return count is not None and set(range(count)) <= set(reported)


class Chosen(NamedTuple):
    """The lists of segments that a commit sends: of this run, and of an earlier one."""

    found: bool
    before: bool


def choose(*, whole: bool, begun: bool, skips: bool, same: bool) -> Chosen | None:
    """Chooses the lists to send; None if nobody knows what the sink has.

    A sink that has written before and may skip has the rows of the earlier run, of this one, or of both. With
    both lists a row that is in none costs a replay, and no row of the sink is left out.

    Args:
        whole: Each own partition has reported to this run.
        begun: An earlier run of the batch has begun the write.
        skips: The sink may leave out what it has written before.
        same: The list of the earlier run is there, and that run had the same inputs.
    """
    if whole and not (begun and skips):
        return Chosen(found=True, before=False)
    return Chosen(found=whole, before=True) if begun and same else None


def digest(*facts: object) -> str:
    """A digest of facts that two runs of a batch can compare: of texts, numbers, bytes, tuples of them."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()
