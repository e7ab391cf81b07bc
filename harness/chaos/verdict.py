"""The verdict on lost, doubled or wrongly reported records: the run against a model in plain Python.

Nothing of what is judged is asked for what it should be, but for the list of records, which is the source's
own and in no store that is harmed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.chaos.records import POISON, REPORTED_AGAIN, TWO_OUTCOMES, Oddity, Record, Tree, words

ROTATIONS = "rotations"
SHOWN = 5
"""Examples of a problem."""
SLACK = 5.0
"""Seconds that an outcome takes from the store to the source's list, with both cores busy."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The state at the end of a run.

    sink: message id of a tree -> its words by position. counters: the ledger's; pending: trees in flight
    there, outstanding: those and outcomes not confirmed. service: the counters as the service said them,
    which was asked after the ledger; None where it did not answer. calm: when the faults were over and all
    processes ran again; trees emitted before are measured from there. rollbacks: spans in which the store
    lost what it had answered. died: process -> how often it ended by itself. left: keys that only trees, or
    calls under way, should have.
    """

    records: Sequence[Record]
    trees: Sequence[Tree]
    sink: Mapping[str, Sequence[tuple[int, str]]]
    oddities: Sequence[Oddity]
    counters: Mapping[str, int]
    pending: int
    outstanding: int
    service: Mapping[str, int] | None
    calm: float
    message_timeout: float
    rollbacks: Sequence[tuple[float, float]] = ()
    died: Mapping[str, int] | None = None
    left: Sequence[str] = ()


def judge(found: Collected) -> list[str]:
    """The problems, one line for each kind; none: nothing was lost."""
    problems = [*_records(found), *_sink(found), *_trees(found), *_oddities(found), *_ledger(found)]
    if died := (found.died or {}).get("source"):
        problems.append(f"the source ended by itself {died} times")
    return problems


def _say(what: str, examples: Iterable[object]) -> Iterable[str]:
    seen = list(examples)
    if seen:
        shown = ", ".join(str(one) for one in islice(seen, SHOWN))
        yield f"{len(seen):,} {what}: {shown}"


def _records(found: Collected) -> Iterable[str]:
    """Records in = records acked in the sink or dead with a reason."""
    if not found.records:
        yield "there was no record"
    complete = {tree.number for tree in found.trees if tree.status == "acked" or tree.ledger == "acked"}
    poison = {one.number for one in found.records if POISON in words(one.line)}
    yield from _say(
        "records have no final outcome",
        (f"{one.number} ({one.state})" for one in found.records if one.state not in ("acked", "dead")),
    )
    yield from _say(
        "records are acked, and no tree of theirs is",
        (one.number for one in found.records if one.state == "acked" and one.number not in complete),
    )
    dead = [one for one in found.records if one.state == "dead"]
    yield from _say("records are dead without a reason", (one.number for one in dead if not one.reason))
    yield from _say(
        "records are dead that should not fail",
        (f"{one.number} ({one.reason})" for one in dead if one.number not in poison),
    )
    yield from _say(
        "records that always fail are acked",
        (one.number for one in found.records if one.state == "acked" and one.number in poison),
    )


def _sink(found: Collected) -> Iterable[str]:
    """Every word of a tree that was acked is in the sink; nothing strange is there."""
    lines = {one.number: words(one.line) for one in found.records}
    numbers = {tree.message_id: tree.number for tree in found.trees}
    missing = []
    for tree in found.trees:
        if tree.status == "acked" or tree.ledger == "acked":
            have = dict(found.sink.get(tree.message_id, ()))
            if have != dict(enumerate(lines[tree.number])):
                missing.append(f"{tree.message_id} has {sorted(have.items())}")
    yield from _say("trees are acked without all of their words in the sink", missing)
    strange = []
    for message_id, rows in found.sink.items():
        number = numbers.get(message_id)
        own = dict(enumerate(lines[number])) if number is not None else {}
        strange += [f"{message_id}: {row}" for row in rows if own.get(row[0]) != row[1]]
    yield from _say("words in the sink are of no record", strange)


def _trees(found: Collected) -> Iterable[str]:
    """Each tree has an outcome, and had it in time."""
    yield from _say(
        "trees have no outcome", (tree.message_id for tree in found.trees if tree.reported is None)
    )
    poison = {one.number for one in found.records if POISON in words(one.line)}
    yield from _say(
        "trees failed that should not",
        (
            tree.message_id
            for tree in found.trees
            if "failed" in (tree.status, tree.ledger) and tree.number not in poison
        ),
    )
    limit = 2 * found.message_timeout + SLACK
    stuck = []
    for tree in found.trees:
        took = (tree.reported or 0.0) - max(tree.emitted, found.calm)
        if tree.reported is not None and took > limit:
            stuck.append(f"{tree.message_id} ({took:.1f} s)")
    yield from _say(f"trees had no outcome within {limit:.0f} s after the faults", stuck)


def _oddities(found: Collected) -> Iterable[str]:
    kinds: dict[str, list[str]] = {}
    for one in found.oddities:
        if one.kind not in (TWO_OUTCOMES, REPORTED_AGAIN) or not _rolled_back(found, one):
            kinds.setdefault(one.kind, []).append(one.what)
    for kind, examples in sorted(kinds.items()):
        yield from _say(f"times: {kind}", examples)


def _rolled_back(found: Collected, one: Oddity) -> bool:
    """True if the store lost its reports between the two outcomes."""
    since = one.at if one.since is None else one.since
    return any(since <= end and begin <= one.at for begin, end in found.rollbacks)


def _ledger(found: Collected) -> Iterable[str]:
    counters = found.counters
    ended = sum(counters[name] for name in ("acked", "failed", "expired"))
    if counters["tracked"] != ended + found.pending:
        yield (
            f"the counters do not add up: {counters['tracked']:,} tracked, {ended:,} ended, "
            f"{found.pending:,} in flight"
        )
    if found.pending:
        yield f"{found.pending:,} trees are stuck in the ledger"
    if found.outstanding > found.pending:
        yield f"{found.outstanding - found.pending:,} outcomes are not confirmed"
    if found.outstanding < found.pending:
        yield f"{found.pending - found.outstanding:,} trees more were confirmed than were tracked"
    yield from _say("keys are left", found.left)
    if found.service is None:
        yield "the service does not answer"
        return
    # All else has come to rest by then; tickers go on, and the service was asked after the ledger.
    wrong = [
        name
        for name, count in counters.items()
        if (found.service.get(name, -1) < count if name == ROTATIONS else found.service.get(name) != count)
    ]
    if wrong:
        yield f"the service tells other counters: {', '.join(wrong)}"
