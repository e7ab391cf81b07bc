"""Totals of each step, from its marks: its acks and fails, the ages of trees, and its last ack or fail.

A step has a number, made of its name, for the counts of shards (`acker.ledger.calls.marks`,
lua/ledger/includes/marks.lua). Steps that come after 255 others share the number 0.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from acker.errors import StoreError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.calls.marks import MOST_NUMBER, MOST_STEPS, Mark, Marked, number_of
from acker.ledger.fields import HIDDEN, Batch, Count, Instant, Seconds
from acker.ledger.outcomes import latency_histogram
from acker.ledger.outcomes.latency_histogram import Latency
from acker.ledger.settings.config import check_name, is_name
from acker.ledger.steps import scripts
from acker.store import keys
from acker.store.keys import Shard
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import pairs, seconds

OTHERS = "(others)"
"""Stands for the steps that share the number 0; no step has this name."""
_SHARDS = 64
_NAMED = 5
_WITHIN = "in two message timeouts"
_log = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()


@dataclass(slots=True)
class StepTotals:
    """Acks and fails of a step since the topology was made, by all its processes.

    ages: bucket (`acker.ledger.outcomes.latency_histogram`) -> trees, by their ages at each ack of their
    tuples.
    """

    step: Annotated[str, "(others): the steps after the first 255, together."]
    tuples: Annotated[
        Count,
        "Tuples that it acked, a tuple of several trees in each, with tuples of rows that it failed in a "
        "batch.",
    ] = 0
    failed: Annotated[Count, "Trees that it failed."] = 0
    last_seen: Annotated[Instant | None, "Its last ack or fail."] = None
    ages: Annotated[Counter[int], HIDDEN] = field(default_factory=Counter)

    @property
    def age(self) -> Annotated[Latency, "Of trees since their track, when it acked their tuples."]:
        """The ages of trees when it acked their tuples."""
        return Latency.from_histogram(self.ages)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last time that a step acked tuples of a tree's slab, of any tree in it."""

    step: str
    at: Annotated[Instant | None, "null if it has not within two message timeouts."] = None
    age: Annotated[Seconds | None, "Seconds since then, by the store's clock."] = None
    batch: Annotated[Batch, "Of its query; null if there is none."] = -1


def mark(core: Core, name: str, batch: int = -1) -> Operation[Mark | None]:
    """The mark of a step's acks and fails; None if the topology keeps no marks, or the store gives none.

    Raises ValidationError for the name, and StoreUnavailable.
    """
    check_name(name, "step")
    if core.config.marks == "off" or not core.config.ackers:
        return None
    number: Reply = None
    try:
        call = partial(scripts.number_step, core.config.name, name, number_of(name), MOST_STEPS)
        [number] = yield from core.make(call)
    except StoreError as error:  # the work matters more than its mark, also without the right to number steps
        number = error
    if not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
        _log.error(
            "acks and fails of step %r of topology %r are not counted: %s", name, core.config.name, number
        )
        return None
    if number == 0 and (core.config.name, name) not in _warned and len(_warned) < MOST_STEPS:
        _warned.add((core.config.name, name))
        _log.warning(
            "topology %r has had %d steps: acks and fails of step %r are counted with others",
            core.config.name, MOST_STEPS, name,
        )  # fmt: skip
    return Mark(number, batch)


def numbers(core: Core) -> Operation[dict[int, str]]:
    """Number -> name of the numbered steps, without unreadable ones."""
    [stored] = yield [command("HGETALL", keys.step_numbers(core.config.name))]
    stored_names = {
        int(number): name.decode("utf-8", "replace")
        for name, number in pairs(stored).items()
        if number.isdigit() and len(number) < 11
    }
    return {
        number: name for number, name in stored_names.items() if is_name(name) and number == number_of(name)
    }


def totals(core: Core) -> Operation[list[StepTotals]]:
    """The totals of a topology's steps, by name, without unreadable ones."""
    names = {0: OTHERS, **(yield from numbers(core))}
    by_number: dict[int, StepTotals] = {}
    for first in range(0, len(core.shards), _SHARDS):
        replies = yield [
            command("HGETALL", shard.step_counts) for shard in core.shards[first : first + _SHARDS]
        ]
        for reply in replies:
            for name, stored in pairs(reply).items():
                number, _, kind = name.decode("utf-8", "replace").partition(" ")
                if number.isdigit() and int(number) in names and stored.isdigit():
                    step = by_number.setdefault(int(number), StepTotals(names[int(number)]))
                    _add(step, kind, int(stored))
    return sorted(by_number.values(), key=lambda step: step.step)


def _add(step: StepTotals, kind: str, value: int) -> None:
    if kind == "tuples":
        step.tuples += value
    elif kind == "failed":
        step.failed += value
    elif kind == "seen":
        step.last_seen = max(step.last_seen or 0.0, value / 1000)
    elif kind.isdigit():
        step.ages[min(int(kind), latency_histogram.MOST_BUCKET)] += value


def seen(
    core: Core, shard: Shard, slabs: Sequence[bytes], most: int = MOST_STEPS
) -> Operation[list[list[Seen]]]:
    """The last ack of each step in each slab of a shard, the latest first.

    most: number of steps to look for, the first by their names. Steps that share a number are one step,
    `OTHERS`, if one of them acked. Slabs of one have no marks.
    """
    known = yield from numbers(core)
    first_ones = sorted(known.items(), key=lambda pair: pair[1])[:most]
    names = dict(first_ones) | ({0: OTHERS} if len(known) >= MOST_STEPS else {})
    fields = [_packed(number) + slab for slab in slabs if not ids.is_one(slab) for number in names]
    [instant] = yield [Request(shard.clock, ["TIME"])]
    now, marks = seconds(instant), dict[bytes, Marked]()
    for first in range(0, len(fields), 1_000):
        part = fields[first : first + 1_000]
        for reply in (yield [command("HMGET", shard.marks(rotation), *part) for rotation in range(4)]):
            for name, value in zip(part, reply, strict=True):
                marked = Marked.parse(value)
                if marked is not None and (name not in marks or marked.at > marks[name].at):
                    marks[name] = marked
    answer = []
    for slab in slabs:
        steps = (
            []
            if ids.is_one(slab)
            else [
                _seen(name, marks.get(_packed(number) + slab), now)
                for number, name in names.items()
                if number or _packed(0) + slab in marks
            ]
        )
        answer.append(sorted(steps, key=lambda seen_step: (-(seen_step.at or 0.0), seen_step.step)))
    return answer


def _packed(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _seen(step: str, mark: Marked | None, now: float) -> Seen:
    return Seen(step) if mark is None else Seen(step, mark.at, max(0.0, now - mark.at), mark.batch)


def text(steps: Sequence[Seen], *, batch: bool = True) -> str:
    """The last acking step of a slab, and the steps without an ack, as text.

    Such an ack may be of another tree of the slab; that a step acked none is true of each of its trees.
    "" without a step. batch: adds the batch.
    """
    if not steps:
        return ""
    last = steps[0] if steps[0].at is not None else None
    none = [step.step for step in steps if step.at is None]
    more = f" and {len(none) - _NAMED} more" if len(none) > _NAMED else ""
    named = ", ".join(none[:_NAMED]) + more
    if last is None:
        return f"no step acked a tuple of its slab {_WITHIN}: not {named}"
    of_batch = f" (batch {last.batch})" if batch and last.batch >= 0 else ""
    acked = f"{last.step}{of_batch} was the last to ack tuples of its slab"
    return f"{acked}; none {_WITHIN} by {named}" if none else acked
