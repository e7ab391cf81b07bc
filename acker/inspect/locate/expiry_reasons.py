"""Reasons of expiry: the places of expiring trees' tuples, and their readers. Found once in a tick.

The search has bounds of slabs, segments and time, because trees must expire in time: trees that it does not
reach expire without a reason.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a segment
is some thousand rows of a stream, stored and acked as one piece; a slot is the random number of a
subscription.
"""

import functools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from acker.errors import StoreError
from acker.inspect.locate import drops, in_python, place, search, tuples
from acker.inspect.locate.line_sections import Before, Gated
from acker.inspect.locate.place import Place
from acker.inspect.locate.tuples import Found, Location
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import bounded_reason
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import Seen
from acker.ledger.tick import tick
from acker.ledger.tick.tick import MOST_REASONS, Looked, Reasons
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams.commits import under_way
from acker.streams.log import segments
from acker.streams.log.subscriptions import DEFAULT

MOST_SLABS = 10_000
"""Slabs of which one tick looks where they are."""
MOST_TREES = 1 << 22
"""Trees of which it notes a place, each time that it finds one."""
SECONDS = 2.0
"""For which a tick looks, about."""
_PAGE = 500
_MOST_ROWS = 1 << 20
_MOST_PARTS = 1 << 16
_MOST_PLACES = 3
_MOST_SETS = 1 << 12
_MOST_STEPS = 32
Numbers: TypeAlias = npt.NDArray[np.uint16]
Part: TypeAlias = tuple[bytes, Numbers, int]
"""A slab, the indexes of some of its trees, and the number of the place where these are."""
IN_NO_STREAM = (
    "in no stream: a bolt in plain Python had a tuple of it and has not said so, or a job had emitted it "
    "outside acker, or it was lost, as by a stream's limits"
)


def explain(core: Core) -> Operation[Reasons]:
    """Finds the places of trees that rotations have set aside, for `acker.ledger.tick.tick.drain`.

    Changes nothing.
    """
    looks: dict[int, Looked] = {}
    wanted = yield from _set_aside(core, looks)
    if not wanted:
        return Reasons(looks=looks)
    # Commits that began after the ticker had looked at them, and before it rotated. The trees of one that
    # begins now were over.
    yield from under_way.send_back(core, (yield from under_way.slabs(core)), 3)
    return replace((yield from _explained(core, wanted)), looks=looks)


def _explained(core: Core, wanted: Mapping[int, frozenset[bytes]]) -> Operation[Reasons]:
    end = time.monotonic() + SECONDS
    streams = yield from search.streams(core)
    reported = yield from in_python.find(core, wanted)
    at_work = yield from step_registry.steps(core)
    if not streams.named and not (yield from under_way.all_of(core)):
        bolts = any(step.kind != "spout" for step in at_work)
        unsaid = in_python.UNSAID + reported.unnamed if bolts or reported.unnamed else ""
        held = yield from reported.holds(core, {}, end)
        seen = yield from _seen(core, wanted, end)
        return _coded(held.parts, held.texts, wanted, unsaid, seen, {}, held.steps)
    gated = Gated(core)
    yield from gated.find(wanted, streams.named, end)
    before = gated.slabs()
    none = frozenset[bytes]()
    sought = {shard: wanted.get(shard, none) | before.get(shard, none) for shard in {*wanted, *before}}
    look = PlaceSearch(core, sought, end, beside=dict.fromkeys(reported.trees, 0))
    whole = yield from look.at_all(streams, at_work, gated.locations())
    there = [location for _, location in look.places.values()]
    places = yield from place.shown(core, 0, there, streams, at_work, rows=False)
    texts = [where.text(timed=False) for where in places]
    steps = {text: _had_by(where, at_work) for text, where in zip(texts, places, strict=True)}
    otherwise = IN_NO_STREAM + reported.unnamed if whole and streams.named else ""
    lately = yield from drops.since(core, streams.named, 3 * core.config.message_timeout)
    if otherwise and lately is not None:
        otherwise = f"{IN_NO_STREAM}: {lately.text()}{reported.unnamed}"
    parts, others = _in_sections(gated.before, look.parts, texts, otherwise)
    held = yield from reported.holds(core, look.beside, end)
    parts += [(slab, indexes, len(texts) + number) for slab, indexes, number in held.parts]
    texts, steps = [*texts, *held.texts], steps | held.steps
    return _coded(parts, texts, wanted, otherwise, (yield from _seen(core, wanted, end)), others, steps)


def _had_by(where: Place, at_work: Sequence[Step]) -> str:
    """The step that has taken rows, or for which they lie there; "" if it is not known."""
    if where.taken_by is not None and where.taken_by.step:
        return where.taken_by.step
    readers = {step.name for step in at_work if where.stream in step.reads and step.kind != "spout"}
    if where.subscription in readers or len(readers) != 1:
        return where.subscription if where.subscription not in (None, DEFAULT) else ""
    return readers.pop()


@dataclass(slots=True)
class PlaceSearch:
    """A search for the places of trees, with its results so far.

    places: the numbers of the places, and their content. parts: trees of a slab in a place. seen: the ids of
    segments that were read before they were published, with their slots. beside: the XOR of the tuples found,
    of some trees.
    """

    core: Core
    wanted: Mapping[int, frozenset[bytes]]
    end: float
    places: dict[tuple[str, int, str], tuple[int, Found]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    seen: set[tuple[str, int]] = field(default_factory=set)
    trees: int = 0
    beside: dict[in_python.Place, int] = field(default_factory=dict)

    def at_all(
        self, streams: search.Streams, at_work: Sequence[Step], gathering: Iterable[Operation[list[Location]]]
    ) -> Operation[bool]:
        """Reads running commits, gathers and streams; returns True if these are all."""
        # Before the streams: segments that are published meanwhile are found twice, and count once.
        pending = yield from tuples.under_way(self.core, streams.named, at_work)
        if not (yield from self._at(pending)):
            return False
        for some in gathering:
            if not (yield from self._at((yield from some))):
                return False
        self.seen = {(one.location.segment.id, one.location.slot) for _, one in self.places.values()}
        entries = 0
        for name in streams.named:
            stream, entry = keys.Stream(self.core.config.name, name), "0-0"
            while True:
                if entries >= search.MOST_SEGMENTS:
                    return False
                [page] = yield [command("XRANGE", stream.entries, f"({entry}", "+", "COUNT", _PAGE)]
                if not page:
                    break
                entry, entries = page[-1][0].decode(), entries + len(page)
                there = []
                for number, values in page:
                    segment = segments.readable(pairs(values).get(b"segment", b""))
                    there += [
                        Location(name, slot, segment, number.decode())
                        for slot in segment.slots
                        if (segment.id, slot) not in self.seen
                    ]
                if not (yield from self._at(there)):
                    return False
                if len(page) < _PAGE:
                    break
        return True

    def _at(self, there: Sequence[Location]) -> Operation[bool]:
        """Reads segments, some rows at a time; returns True if bounds let it read all of them."""
        start = 0
        while start < len(there):
            if len(self.parts) > _MOST_PARTS or self.trees > MOST_TREES or time.monotonic() > self.end:
                return False
            stop, rows = start, 0
            while stop < len(there) and (stop == start or rows < _MOST_ROWS):
                rows += there[stop].segment.rows
                stop += 1
            for one in (yield from tuples.look(self.core, there[start:stop], self.wanted)):
                self._add(one)
            start = stop
        return True

    def _add(self, found_rows: Found) -> None:
        where = (
            found_rows.location.stream,
            found_rows.location.slot,
            found_rows.location.entry or found_rows.location.segment.id,
        )
        none = found_rows.indexes[:0]
        number, _ = self.places.setdefault(
            where, (len(self.places), replace(found_rows, indexes=none, words=none))
        )
        self.parts.append((found_rows.slab, found_rows.indexes.astype(np.uint16), number))
        self.trees += len(found_rows.indexes)
        if self.beside:
            for index, word in zip(found_rows.indexes.tolist(), found_rows.words.tolist(), strict=True):
                if (found_rows.slab, index) in self.beside:
                    self.beside[found_rows.slab, index] ^= word


def _set_aside(core: Core, looks: dict[int, Looked]) -> Operation[dict[int, frozenset[bytes]]]:
    """The slabs that rotations have set aside, by shard; a shard that cannot be read has none.

    looks: gets the shards that were looked at.
    """
    slabs: dict[int, frozenset[bytes]] = {}
    left = MOST_SLABS
    for shard in core.shards:
        names: set[bytes] = set()
        try:
            looks[shard.number], there = yield from tick.begin_scan(core, shard)
            for key in there:
                [members] = yield [command("SRANDMEMBER", key, max(1, left))]
                names.update(name for name in members if len(name) == ids.SLAB_BYTES)
        except StoreError:  # the drain reports the fault
            continue
        left -= len(names)
        if names:
            slabs[shard.number] = frozenset(names)
        if left <= 0:
            break
    return slabs


def _seen(
    core: Core, wanted: Mapping[int, frozenset[bytes]], end: float
) -> Operation[dict[bytes, Sequence[Seen]]]:
    """Returns the steps that have acked tuples of slabs, as far as there is time."""
    acks: dict[bytes, Sequence[Seen]] = {}
    for number, slabs in wanted.items():
        many = sorted(slab for slab in slabs if not ids.is_one(slab))
        for first in range(0, len(many), _PAGE):
            if time.monotonic() > end:
                return acks
            part = many[first : first + _PAGE]
            seen = yield from step_totals.seen(core, core.shards[number], part, _MOST_STEPS)
            acks |= dict(zip(part, seen, strict=True))
    return acks


@dataclass(slots=True)
class _Sets:
    """Sets of texts, a number for each set: 0 for none. A set that is no longer known has no text."""

    sets: list[frozenset[int] | None] = field(default_factory=lambda: [frozenset(), None])
    numbers: dict[frozenset[int], int] = field(default_factory=dict)
    known: dict[tuple[int, int], int] = field(default_factory=dict)

    def more(self, before: int, text: int) -> int:
        """The number of a set and one text more; 1 where there are too many."""
        if (before, text) not in self.known:
            there = self.sets[before]
            if there is None or len(self.sets) > _MOST_SETS:
                return before if there is not None and text in there else 1
            number = self.numbers.setdefault(there | {text}, len(self.sets))
            if number == len(self.sets):
                self.sets.append(there | {text})
            self.known[before, text] = number
        return self.known[before, text]


def _coded(
    parts: Sequence[Part],
    of_places: Sequence[str],
    wanted: Mapping[int, frozenset[bytes]],
    otherwise: str,
    seen: Mapping[bytes, Sequence[Seen]],
    others: Mapping[bytes, str],
    steps: Mapping[str, str] = MappingProxyType({}),
) -> Reasons:
    """Returns reasons for a drain: the most frequent ones, and for each slab the reason of each tree.

    of_places: their texts, by number. otherwise: the text for trees that were found nowhere; others: the
    texts for trees of some slabs. seen: the steps that have acked tuples of each slab, without the batch if
    it differs from slab to slab. steps: the step of each place, by its text.
    """
    slabs = [slab for members in wanted.values() for slab in members]
    ends = {slab: step_totals.text(seen.get(slab, ())) for slab in slabs}
    if len(set(ends.values())) > MOST_REASONS // 2:
        ends = {slab: step_totals.text(seen.get(slab, ()), batch=False) for slab in slabs}
    said, where = _merged([part for part in parts if part[0] in ends], of_places)

    @functools.cache
    def reason(end: str, number: int, other: str = otherwise) -> str:
        return _reason(where[number] if number else {other} - {""}, end, steps)

    counted = Counter(reason(end, 0, others.get(slab, otherwise)) for slab, end in ends.items())
    there = {slab: np.flatnonzero(np.bincount(numbers)).tolist() for slab, numbers in said.items()}
    for slab, numbers in said.items():
        counts = np.bincount(numbers)
        counted.update({reason(ends[slab], code): int(counts[code]) for code in there[slab] if code})
    first = reason("", 0)
    texts = [text for text, _ in counted.most_common() if text != first][: MOST_REASONS - 1]
    coded = {text: number for number, text in enumerate([first, *texts], start=1)}
    codes = {}
    for slab in slabs:
        codes_of_slab = np.zeros(len(where), dtype=np.uint16)
        codes_of_slab[0] = coded.get(
            reason(ends[slab], 0, others.get(slab, otherwise)), 0 if slab in others else 1
        )
        for code in there.get(slab, ()):
            codes_of_slab[code] = coded.get(reason(ends[slab], code), 0) if code else codes_of_slab[0]
        codes[slab] = _code(codes_of_slab, said.get(slab, np.zeros(0, dtype=np.uint16)))
    return Reasons((first, *texts), codes)


def _in_sections(
    before: Mapping[bytes, Before], parts: Sequence[Part], of_places: list[str], otherwise: str
) -> tuple[list[Part], dict[bytes, str]]:
    """Adds the places of requests in earlier sections, for their trees in later ones.

    of_places: gets the texts of these. otherwise: the text for trees that were found nowhere. Returns by slab
    the texts that replace it for trees that wait for an earlier section, too.
    """
    later: dict[bytes, list[tuple[bytes, Before]]] = {}
    for slab, earlier in before.items():
        later.setdefault(earlier.slab, []).append((slab, earlier))
    there = {slab for slab, _, _ in parts}
    others = {
        slab: earlier.otherwise("" if earlier.slab in there else otherwise)
        for slab, earlier in before.items()
    }
    located, numbers = list(parts), dict[str, int]()

    def add(slab: bytes, indexes: Numbers, text: str) -> None:
        if text not in numbers:
            numbers[text] = len(of_places)
            of_places.append(text)
        located.append((slab, indexes, numbers[text]))

    for slab_of_part, indexes, number in parts:
        for slab, earlier in later.get(slab_of_part, ()):
            add(slab, indexes, earlier.at(of_places[number]))
        if slab_of_part in before and before[slab_of_part].done:  # gathered groups wait for no rows of others
            add(slab_of_part, indexes, others[slab_of_part])
    return located, others


def _merged(parts: Sequence[Part], of_places: Sequence[str]) -> tuple[dict[bytes, Numbers], list[Set[str]]]:
    """For each slab which texts its trees have, as numbers, and the texts of each number."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(of_places))}
    distinct = list(numbers)
    sets, said = _Sets(), dict[bytes, Numbers]()
    for slab, indexes, number in parts:
        before = said.get(slab, np.zeros(0, dtype=np.uint16))
        if len(indexes) and int(indexes.max()) >= len(before):
            more = np.zeros(int(indexes.max()) + 1 - len(before), dtype=np.uint16)
            before = np.concatenate((before, more))
        for code in np.unique(before[indexes]).tolist():
            before[indexes[before[indexes] == code]] = sets.more(code, numbers[of_places[number]])
        said[slab] = before
    return said, [{distinct[code] for code in there or ()} for there in sets.sets]


def _code(codes: Numbers, said: Numbers) -> bytes:
    """Returns the reasons of a slab's trees: one for all unnamed trees, then runs of trees with another."""
    numbers = codes[said]
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, len(numbers))[: len(numbers)]
    runs = np.zeros(len(ends), dtype=[("from", "<u2"), ("n", "<u2"), ("number", "u1")])
    runs["n"] = np.diff(ends, prepend=0)
    runs["from"], runs["number"] = ends - runs["n"], numbers[ends - 1]
    return bytes([codes[0]]) + bytes(runs[runs["number"] != codes[0]].tobytes())


def _reason(texts: Set[str], seen: str, steps: Mapping[str, str]) -> str:
    """Returns the places of a tree, and the steps that have acked tuples of its slab, as the text of a cause.

    The step of the cause is the one that had all of its rows.
    """
    more = f"; and in {len(texts) - _MOST_PLACES} more" if len(texts) > _MOST_PLACES else ""
    where = "; ".join(sorted(texts)[:_MOST_PLACES]) + more
    reason = "; ".join(part for part in (where, seen) if part)
    had_by = {steps.get(text, "") for text in texts}
    return Cause(bounded_reason(reason), had_by.pop() if len(had_by) == 1 else "").text()
