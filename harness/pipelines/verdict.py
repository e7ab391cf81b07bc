"""The verdict: acked records that the sink lacks, and records that are nowhere."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.pipelines.operators import own

SHOWN = 6
"""Examples of a problem."""

DONE, PLANNED, REFUSED, SPARK, BROKEN, HUNG = "done", "planned", "refused", "Spark", "broken", "hung"
"""Ends of a run of a query: with all that there was; by the story; by a typed error of acker; by an error
of Spark's or of the user's code; by an error that acker let out; not at all."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An outcome, when it was reported. attempt: from 1. final: no replay follows. sink: its rows then."""

    number: int
    status: str
    attempt: int
    final: bool
    sink: frozenset[str]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run of a query. error: its text."""

    query: str
    kind: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """The state at the end of a story, after each record had all its attempts.

    expected: number of each record -> the marks that have to be in the sink when it is acked. reported: all
    outcomes. sink: marks there. letters: numbers of dead letters. pending, kept: rows that the spouts have
    in the store without an outcome; and how many they ever had. files: the records came from files, which
    are tracked by a query: unread records are in the files still.
    """

    expected: Mapping[int, frozenset[str]]
    reported: Sequence[Reported]
    sink: frozenset[str]
    letters: Sequence[int]
    pending: int
    kept: int
    ends: Sequence[End]
    files: bool = False


def judge(found: Observed) -> list[str]:
    """The problems, one line for each kind; none: nothing was lost."""
    return [*_acked(found), *_accounts(found), *_sink(found), *_ends(found)]


def clean(found: Observed) -> bool:
    """True if each run of a query ended with all its input done, or as the story wanted."""
    return all(end.kind in (DONE, PLANNED) for end in found.ends)


def _say(what: str, examples: Iterable[object]) -> Iterable[str]:
    seen = list(examples)
    if seen:
        more = ", ..." if len(seen) > SHOWN else ""
        yield f"{len(seen):,} {what}: {', '.join(str(one) for one in islice(seen, SHOWN))}{more}"


def _acked(found: Observed) -> Iterable[str]:
    acked = [one for one in found.reported if one.status == "acked" and one.number in found.expected]
    early = {one.number for one in acked if not found.expected[one.number] <= one.sink}
    yield from _say("records were reported acked and are not in the sink", sorted(early))
    gone = {one.number for one in acked if not found.expected[one.number] <= found.sink}
    yield from _say("records were reported acked, were in the sink, and went from it", sorted(gone - early))


def _accounts(found: Observed) -> Iterable[str]:
    ended = [one.number for one in found.reported if one.final]
    yield from _say(
        "records had two final outcomes", sorted({number for number in ended if ended.count(number) > 1})
    )
    yield from _say("outcomes are of no record", sorted(set(ended) - found.expected.keys()))
    dead = {one.number for one in found.reported if one.final and one.status != "acked"}
    yield from _say("records failed for good and are no dead letters", sorted(dead - set(found.letters)))
    if found.pending:
        yield f"{found.pending:,} records have no outcome after all their attempts"
    missing = sorted(found.expected.keys() - set(ended))
    if not found.files or clean(found):
        if len(missing) > found.pending:
            yield from _say("records vanished: no outcome, and not pending", missing)
    elif found.kept - len(set(ended)) > found.pending:
        yield f"of {found.kept:,} records that were tracked, {len(set(ended)):,} have an outcome"
    if clean(found):
        yield from _say("records are dead, and nothing failed them so often", sorted(dead))


def _sink(found: Observed) -> Iterable[str]:
    strange = [mark for mark in found.sink if mark not in found.expected.get(own(mark), ())]
    yield from _say("marks in the sink are of no record", sorted(strange))


def _ends(found: Observed) -> Iterable[str]:
    for kind, what in ((BROKEN, "let out an error without a type"), (HUNG, "did not end")):
        yield from _say(
            f"queries {what}",
            (
                f"{one.query} ({(one.error.strip().splitlines() or [''])[-1]})"
                for one in found.ends
                if one.kind == kind
            ),
        )
