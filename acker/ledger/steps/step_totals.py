"""What each step has done, by its marks: what it has acked and failed, how old trees were, and when last.

A step has a number, made of its name, by which the shards count (`acker.ledger.calls.marks`,
lua/ledger/includes/marks.lua). Steps that come after 255 others share the number 0.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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
"""Stands for the steps that share the number 0; it is the name of none."""
_SHARDS = 64
_NAMED = 5
_log = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()


@dataclass(slots=True)
class StepTotals:
    """Acks and fails of a step since the topology was made, whoever ran it.

    ages: bucket (`acker.ledger.outcomes.latency_histogram`) -> trees, by how long they had been tracked when
    the step acked tuples of theirs, each time that it did.
    """

    step: Annotated[str, "(others): the steps after the first 255, together."]
    tuples: Annotated[
        Count,
        "Tuples that it acked, one of several trees in each; those of rows that it failed in a batch are "
        "among them.",
    ] = 0
    failed: Annotated[Count, "Trees that it failed."] = 0
    last_seen: Annotated[Instant | None, "Its last ack or fail."] = None
    ages: Annotated[Counter[int], HIDDEN] = field(default_factory=Counter)

    @property
    def age(self) -> Annotated[Latency, "Of trees since their track, when it acked tuples of theirs."]:
        """The ages of trees when it acked tuples of theirs."""
        return Latency.of(self.ages)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last time that a step acked tuples of the slab of a tree, of whichever tree in it."""

    step: str
    at: Annotated[Instant | None, "null where it has not within two message timeouts."] = None
    age: Annotated[Seconds | None, "Seconds since then, by the store's clock."] = None
    batch: Annotated[Batch, "Of its query; -1 where there is none."] = -1


def mark(core: Core, name: str, batch: int = -1) -> Operation[Mark | None]:
    """What a step is to ack and fail with; None where the topology keeps no marks, or the store gives none.

    Raises ValidationError for the name, and StoreUnavailable.
    """
    check_name(name, "step")
    if core.config.marks == "off" or not core.config.ackers:
        return None
    number: Reply = None
    try:
        [number] = yield [scripts.number_step(core.config.name, name, number_of(name), MOST_STEPS)]
    except StoreError as error:  # what it does is worth more than who it is: so are rights of before
        number = error
    if not isinstance(number, int) or not 0 <= number <= MOST_NUMBER:
        _log.error("what step %r of topology %r does is not noted: %s", name, core.config.name, number)
        return None
    if number == 0 and (core.config.name, name) not in _warned and len(_warned) < MOST_STEPS:
        _warned.add((core.config.name, name))
        _log.warning(
            "topology %r has had %d steps: what step %r does is counted with others",
            core.config.name, MOST_STEPS, name,
        )  # fmt: skip
    return Mark(number, batch)


def numbers(core: Core) -> Operation[dict[int, str]]:
    """Number -> name of the steps that have one; what cannot be read is left out."""
    [stored] = yield [command("HGETALL", keys.step_numbers(core.config.name))]
    found = {
        int(number): name.decode("utf-8", "replace")
        for name, number in pairs(stored).items()
        if number.isdigit() and len(number) < 11
    }
    return {number: name for number, name in found.items() if is_name(name) and number == number_of(name)}


def totals(core: Core) -> Operation[list[StepTotals]]:
    """What the steps of a topology have done, by name; what cannot be read is left out."""
    named = {0: OTHERS, **(yield from numbers(core))}
    found: dict[int, StepTotals] = {}
    for first in range(0, len(core.shards), _SHARDS):
        replies = yield [
            command("HGETALL", shard.step_counts) for shard in core.shards[first : first + _SHARDS]
        ]
        for reply in replies:
            for name, stored in pairs(reply).items():
                number, _, what = name.decode("utf-8", "replace").partition(" ")
                if number.isdigit() and int(number) in named and stored.isdigit():
                    one = found.setdefault(int(number), StepTotals(named[int(number)]))
                    _add(one, what, int(stored))
    return sorted(found.values(), key=lambda one: one.step)


def _add(one: StepTotals, what: str, value: int) -> None:
    if what == "tuples":
        one.tuples += value
    elif what == "failed":
        one.failed += value
    elif what == "seen":
        one.last_seen = max(one.last_seen or 0.0, value / 1000)
    elif what.isdigit():
        one.ages[min(int(what), latency_histogram.MOST_BUCKET)] += value


def seen(
    core: Core, shard: Shard, slabs: Sequence[bytes], most: int = MOST_STEPS
) -> Operation[list[list[Seen]]]:
    """For each slab of a shard, when each step last acked tuples of it, the latest first.

    most: steps to look for, the first by their names. Those that share a number are one, `OTHERS`, where
    one of them has. Slabs of one have no marks.
    """
    known = yield from numbers(core)
    first_ones = sorted(known.items(), key=lambda one: one[1])[:most]
    named = dict(first_ones) | ({0: OTHERS} if len(known) >= MOST_STEPS else {})
    fields = [_packed(number) + slab for slab in slabs if not ids.is_one(slab) for number in named]
    [instant] = yield [Request(shard.clock, ["TIME"])]
    now, found = seconds(instant), dict[bytes, Marked]()
    for first in range(0, len(fields), 1_000):
        part = fields[first : first + 1_000]
        for reply in (yield [command("HMGET", shard.marks(rotation), *part) for rotation in range(4)]):
            for name, value in zip(part, reply, strict=True):
                one = Marked.parse(value)
                if one is not None and (name not in found or one.at > found[name].at):
                    found[name] = one
    answer = []
    for slab in slabs:
        own = (
            []
            if ids.is_one(slab)
            else [
                _seen(name, found.get(_packed(number) + slab), now)
                for number, name in named.items()
                if number or _packed(0) + slab in found
            ]
        )
        answer.append(sorted(own, key=lambda one: (-(one.at or 0.0), one.step)))
    return answer


def _packed(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _seen(step: str, found: Marked | None, now: float) -> Seen:
    return Seen(step) if found is None else Seen(step, found.at, max(0.0, now - found.at), found.batch)


def text(found: Sequence[Seen], *, batch: bool = True) -> str:
    """Who acked last, and who never did, for people; "" where nobody is known. batch: says which it was."""
    if not found:
        return ""
    last = found[0] if found[0].at is not None else None
    never = [one.step for one in found if one.at is None]
    said = []
    if last is not None:
        said = [f"last acked by {last.step}{f' (batch {last.batch})' if batch and last.batch >= 0 else ''}"]
    if never:
        more = f" and {len(never) - _NAMED} more" if len(never) > _NAMED else ""
        said.append(f"never by {', '.join(never[:_NAMED])}{more}")
    return ", ".join(said)
