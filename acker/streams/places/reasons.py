"""Why trees expire: where their tuples were at that moment, and who had them. Looked for once in a tick.

The look has bounds of slabs, segments and time, for trees must expire in time: what it does not reach
expires without a reason.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from acker.errors import StoreError
from acker.inspect import marks, steps
from acker.inspect.marks import Seen
from acker.ledger import ids, tick
from acker.ledger.config import bounded_reason
from acker.ledger.core import Core
from acker.ledger.tick import MOST_REASONS, Reasons
from acker.store import keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams import segments
from acker.streams.places import drops, lying, place, search
from acker.streams.places.lying import Found, Lying

MOST_SLABS = 10_000
"""Slabs of which one tick looks where they are."""
SECONDS = 2.0
"""For which a tick looks, about."""
_PAGE = 500
_MOST_PLACES = 3
_TREES = 1 << 17
_MOST_STEPS = 32
IN_NO_STREAM = (
    "in no stream: a bolt in plain Python had a tuple of it, or a job had emitted it outside acker, or it "
    "was lost, as by a stream's limits"
)


def explain(core: Core) -> Operation[Reasons]:
    """Where the trees are that rotations have set aside, for `acker.ledger.tick.drain`. Changes nothing."""
    wanted = yield from _set_aside(core)
    if not wanted:
        return Reasons()
    end = time.monotonic() + SECONDS
    known = yield from search.streams(core)
    if not known.named:
        return _coded({}, wanted, "", (yield from _seen(core, wanted, end)))
    found, whole = yield from _look(core, known, wanted, end)
    at_work = yield from steps.steps(core)
    lies = {_key(one): one for one in found}  # one of the slabs of each place stands for all
    places = yield from place.shown(core, 0, list(lies.values()), known, at_work, rows=False)
    texts = {key: where.text(timed=False) for key, where in zip(lies, places, strict=True)}
    of_trees: dict[bytes, dict[int, set[str]]] = {}
    for one in found:
        text, trees = texts[_key(one)], of_trees.setdefault(one.slab, {})
        for index in one.indexes.tolist():
            trees.setdefault(index, set()).add(text)
    otherwise = IN_NO_STREAM if whole else ""
    lately = yield from drops.since(core, known.named, 3 * core.config.message_timeout)
    if whole and lately is not None:
        otherwise = f"{IN_NO_STREAM}: {lately.text()}"
    return _coded(of_trees, wanted, otherwise, (yield from _seen(core, wanted, end)))


def _key(one: Found) -> tuple[str, int, str]:
    return one.lying.stream, one.lying.slot, one.lying.entry


def _set_aside(core: Core) -> Operation[dict[int, frozenset[bytes]]]:
    """The slabs that rotations have set aside, by shard; a shard that cannot be read has none."""
    found: dict[int, frozenset[bytes]] = {}
    left = MOST_SLABS
    for shard in core.shards:
        names: set[bytes] = set()
        try:
            for _, key in (yield from tick.aside(core, shard)):
                [members] = yield [command("SRANDMEMBER", key, max(1, left))]
                names.update(name for name in members if len(name) == ids.SLAB_BYTES)
        except StoreError:  # the drain says what is wrong with it
            continue
        left -= len(names)
        if names:
            found[shard.number] = frozenset(names)
        if left <= 0:
            break
    return found


def _look(
    core: Core, known: search.Streams, wanted: Mapping[int, frozenset[bytes]], end: float
) -> Operation[tuple[list[Found], bool]]:
    """What lies in streams of slabs, and whether all was looked at."""
    found: list[Found] = []
    looked = trees = 0
    for name in known.named:
        own, entry = keys.Stream(core.config.name, name), "0-0"
        while True:
            if looked >= search.MOST_SEGMENTS or trees > _TREES or time.monotonic() > end:
                return found, False
            [page] = yield [command("XRANGE", own.entries, f"({entry}", "+", "COUNT", _PAGE)]
            if not page:
                break
            entry, looked = page[-1][0].decode(), looked + len(page)
            there = []
            for number, values in page:
                segment = segments.readable(pairs(values).get(b"segment", b""))
                there += [Lying(name, slot, segment, number.decode()) for slot in segment.slots]
            new = yield from lying.look(core, there, wanted)
            found += new
            trees += sum(len(one.indexes) for one in new)
            if len(page) < _PAGE:
                break
    return found, True


def _seen(
    core: Core, wanted: Mapping[int, frozenset[bytes]], end: float
) -> Operation[dict[bytes, Sequence[Seen]]]:
    """Which steps have acked tuples of slabs, as far as there is time."""
    found: dict[bytes, Sequence[Seen]] = {}
    for number, slabs in wanted.items():
        many = sorted(slab for slab in slabs if not ids.is_one(slab))
        for first in range(0, len(many), _PAGE):
            if time.monotonic() > end:
                return found
            part = many[first : first + _PAGE]
            seen = yield from marks.seen(core, core.shards[number], part, _MOST_STEPS)
            found |= dict(zip(part, seen, strict=True))
    return found


def _coded(
    of_trees: Mapping[bytes, Mapping[int, Set[str]]],
    wanted: Mapping[int, frozenset[bytes]],
    otherwise: str,
    seen: Mapping[bytes, Sequence[Seen]],
) -> Reasons:
    """Reasons as a drain takes them: the most frequent ones, and for each slab which of its trees has which.

    otherwise: what is said of trees that were found nowhere. seen: who has acked tuples of each slab; in
    which batch is not said where that differs from slab to slab.
    """
    slabs = [slab for members in wanted.values() for slab in members]
    ends = {slab: marks.text(seen.get(slab, ())) for slab in slabs}
    if len(set(ends.values())) > MOST_REASONS // 2:
        ends = {slab: marks.text(seen.get(slab, ()), batch=False) for slab in slabs}
    said = {
        slab: {index: _reason(texts, ends[slab]) for index, texts in of_trees.get(slab, {}).items()}
        for slab in slabs
    }
    nowhere = {otherwise} if otherwise else set[str]()
    others = {slab: _reason(nowhere, ends[slab]) for slab in slabs}
    counted = Counter(reason for trees in said.values() for reason in trees.values())
    counted.update(others.values())
    first = _reason(nowhere, "")
    texts = [reason for reason, _ in counted.most_common() if reason != first][: MOST_REASONS - 1]
    numbers = {reason: number for number, reason in enumerate([first, *texts], start=1)}
    codes = {}
    for slab in slabs:
        code = bytearray([numbers.get(others[slab], 1)])
        start = last = number = -1
        for index, reason in sorted(said[slab].items()):
            if index != last + 1 or numbers.get(reason, 0) != number:
                code += _run(start, last, number)
                start, number = index, numbers.get(reason, 0)
            last = index
        codes[slab] = bytes(code + _run(start, last, number))
    return Reasons((first, *texts), codes)


def _run(start: int, last: int, number: int) -> bytes:
    """Trees that follow each other and have the same reason."""
    if start < 0:
        return b""
    return start.to_bytes(2, "little") + (last - start + 1).to_bytes(2, "little") + bytes([number])


def _reason(texts: Set[str], seen: str) -> str:
    """The places of a tree, and who has acked tuples of its slab, as one reason."""
    more = f"; and in {len(texts) - _MOST_PLACES} more" if len(texts) > _MOST_PLACES else ""
    where = "; ".join(sorted(texts)[:_MOST_PLACES]) + more
    return bounded_reason("; ".join(part for part in (where, seen and f"its slab {seen}") if part))
