"""Completion: whether all records that were first tracked before a time are done. A gate for schedules.

A record is done when it is acked or a dead letter; a replay counts as its record. The answer is exact, or
says that it cannot be known. Nothing here trusts the clock of a client.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from acker.errors import ValidationError, shown
from acker.inspect.locate import open_trees, search, servers
from acker.inspect.locate.expiry_reasons import PlaceSearch
from acker.inspect.locate.open_trees import OpenTrees
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Instant, instant
from acker.ledger.steps import step_registry
from acker.store.operation import Operation
from acker.streams.sources import reached

State: TypeAlias = Literal["complete", "open", "unknown"]
LONGEST = 10 * 365 * 86_400.0
"""Seconds that a time may be ahead."""
_TRIES = 5
_SECONDS = 2.0
AGE_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,3})?[smhd]$"
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
IN_NO_STREAM = "in no stream: with a spout or a bolt in plain Python"
_NOT_LOOKED = "not looked for: too many segments"
_EARLY = "the time has not come yet, by the clock of the store"
_OFF = "tracking is off (ackers=0): the store knows of no record"
_MOVED = "replays began during each look: ask again"


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """A place of open records."""

    step: Annotated[str, "The step, or the spout, that the records wait for."]
    records: Annotated[Count, "Records there; one with rows in several places counts in each."]


@dataclass(frozen=True, slots=True)
class Completion:
    """The records of a topology that were first tracked before a time."""

    before: Instant
    state: Annotated[
        State,
        "`complete`: all of them are acked or dead letters. `open`: some are not. `unknown`: the store does "
        "not know all of them.",
    ]
    records: Annotated[Count, "Records that are not done."]
    places: Annotated[tuple[OpenPlace, ...], "Where they are, the most first, as far as that was found."] = ()
    reasons: Annotated[tuple[str, ...], "Why it is not known, or not over."] = ()

    @property
    def text(self) -> Annotated[str, "The answer, for people."]:
        """The answer, for people."""
        if self.state == "complete":
            return f"complete: all records that were tracked before {instant(self.before)} are done"
        counted = f"{self.records:,} record{'s' * (self.records != 1)}"
        return "; ".join([f"{self.state}: {counted} not done", *self.reasons])


def before_of(text: str, now: float) -> float:
    """A time from text: ISO 8601 with a zone, or an age as `90s`, `15m`, `2h` or `1d`, in Unix seconds.

    Args:
        text: The text.
        now: The time to which an age refers, in Unix seconds.

    Raises:
        ValidationError: The text is neither, or a time without a zone.
    """
    expected = "expected a time with its zone, as 2026-11-26T00:00:00+01:00, or an age as 90s, 15m, 2h or 1d"
    if age := _AGE.fullmatch(text):
        return now - float(age[1]) * _UNITS[age[2]]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError(f"before: {expected}, got {shown(text)}") from None
    if at.tzinfo is None:
        raise ValidationError(f"before: {expected}, got {shown(text)}, which has no zone")
    return at.timestamp()


def completion(core: Core, before: str | datetime | float) -> Operation[Completion]:
    """Looks for records that were first tracked before a time, and are not done. Changes no record.

    It reads what is in flight, page by page: a second for some million trees.

    Args:
        core: The ledger.
        before: The time: text as `before_of` takes it, a datetime with a zone, or Unix seconds.

    Returns:
        The answer.

    Raises:
        ValidationError: The time is not valid.
        UnreadableRecord: A record that tells what is open cannot be read.
    """
    times = yield from servers.note(core)
    at = _before(before, times.now / 1000)
    before_ms = math.ceil(at * 1000)
    if not core.config.ackers:
        return Completion(at, "unknown", 0, (), (_OFF,))
    tries = 0
    while True:
        tries += 1
        counts = yield from open_trees.replayed(core)
        noting = yield from reached.open_before(core, before_ms)
        seen = yield from open_trees.find(core, before_ms, noting)
        moved = counts != (yield from open_trees.replayed(core))
        if not moved or seen.pending or seen.waiting or tries == _TRIES:
            break
    noted = Counter({spout: one.open for spout, one in noting.items()})
    waiting = Counter(seen.waiting) + (noted - Counter(seen.noted))
    places = Counter({f"spout {name}": count for name, count in waiting.items()})
    records = seen.pending + sum(places.values())
    if seen.slabs:
        places.update((yield from _places(core, seen)))
    reasons = list(_reasons(times, before_ms, seen, moved and not records))
    # Looked at once more: a server that was lost meanwhile has shown less than there was.
    again = yield from servers.note(core)
    if again.since > times.since and before_ms < again.since:
        reasons = [_lost(again.since), *(reason for reason in reasons if reason != _lost(times.since))]
    early = before_ms > times.now
    state: State = "unknown" if reasons else "open" if records or early else "complete"
    listed = tuple(OpenPlace(step, count) for step, count in places.most_common())
    return Completion(at, state, records, listed, (*reasons, *([_EARLY] if early else ())))


def _before(before: str | datetime | float, now: float) -> float:
    if isinstance(before, str):  # no record was tracked before 1970, and each time to come is open
        at = min(max(0.0, before_of(before, now)), now + LONGEST)
    elif isinstance(before, datetime):
        if before.tzinfo is None:
            raise ValidationError(f"before: expected a datetime with a zone, got {shown(before)}")
        at = before.timestamp()
    elif not math.isfinite(before):
        raise ValidationError(f"before: expected a time, got {shown(before)}")
    else:
        at = float(before)
    if not 0 <= at <= now + LONGEST:
        raise ValidationError(f"before: expected a time from 1970 to ten years from now, got {shown(before)}")
    return at


def _lost(since: int) -> str:
    return (
        f"the store is known to be whole since {instant(since / 1000)} only: a server was started, promoted "
        "or emptied then, or no ticker had looked before"
    )


def _reasons(times: servers.ServerTimes, before: int, seen: OpenTrees, moved: bool) -> list[str]:
    reasons = []
    if before < times.since:
        reasons.append(_lost(times.since))
    if seen.unreadable:
        reasons.append(f"{seen.unreadable:,} records of the ledger cannot be read")
    if moved:
        reasons.append(_MOVED)
    return reasons


def _places(core: Core, seen: OpenTrees) -> Operation[Mapping[str, int]]:
    """Counts the trees of slabs by the subscription that their tuples wait for, for two seconds at most."""
    streams = yield from search.streams(core)
    at_work = yield from step_registry.steps(core)
    wanted = {shard: frozenset(slabs) for shard, slabs in seen.slabs.items()}
    look = PlaceSearch(core, wanted, time.monotonic() + _SECONDS)
    whole = yield from look.at_all(streams, at_work, ())
    named = {number: one.location for number, one in look.places.values()}
    trees: dict[str, set[tuple[bytes, int]]] = {}
    for slab, indexes, number in look.parts:
        location = named[number]
        subscription = streams.named.get(location.stream, {}).get(location.slot) or "its first subscription"
        step = f"{subscription} (stream {location.stream})" if location.stream else location.commit
        trees.setdefault(step, set()).update((slab, int(index)) for index in indexes)
    located = set[tuple[bytes, int]]().union(*trees.values())
    counts = {step: len(own) for step, own in trees.items()}
    if seen.pending > len(located):
        counts[IN_NO_STREAM if whole else _NOT_LOOKED] = seen.pending - len(located)
    return counts
