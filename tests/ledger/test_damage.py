"""Damage of any kind to some slabs: whatever is called, all other slabs fare as if there were no damage."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acker.errors import UnreadableRecord
from acker.inspect.topology.totals import unreadable
from acker.inspect.trees import failures
from acker.ledger import ids
from acker.ledger.calls.calls import Submission
from acker.ledger.calls.marks import Mark
from acker.ledger.client import Ledger
from acker.ledger.outcomes.outcomes import Confirmation, OutcomeReader, digest
from acker.ledger.slabs.slabs import NewSlab
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.models.ledger_state import read_all, shard_key, told

_numbers = count()
SIZES = (1, 1, 2, 5, 400)
CALLS = ("update", "fail", "reset", "track", "tick", "confirm")


def damage_header(ledger: Ledger, raw: Any, slab: bytes, rng: Random) -> None:
    key = shard_key(ledger, 0, "slabs")
    header = raw.hget(key, slab)
    if header is None or rng.random() < 0.2:
        raw.hdel(key, slab)
    else:
        broken = bytearray(header)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken)) if broken else 0 :] = broken[1:] or b"\xff"
        raw.hset(key, slab, rng.choice([bytes(broken), b"\x09" + header[1:], header + b"x", header[:7], b""]))


def damage_words(ledger: Ledger, raw: Any, slab: bytes, rng: Random) -> None:
    shard = ledger.core.shards[0]
    if ids.is_one(slab):
        raw.hset(shard.ones, slab, rng.randbytes(rng.choice([0, 1, 7, 9, 16])))
    else:
        vector = raw.get(shard.vector(slab)) or b""
        cut = rng.randrange(len(vector) + 1)
        raw.set(shard.vector(slab), rng.choice([vector[:cut], vector + rng.randbytes(rng.randint(1, 20))]))


def damage_message_ids(ledger: Ledger, raw: Any, slab: bytes, rng: Random) -> None:
    packed = raw.hget(ledger.core.shards[0].message_ids, slab) or b""
    raw.hset(
        ledger.core.shards[0].message_ids,
        slab,
        rng.choice([packed[:-1], packed + b"x", b"", b"\xff\xff" * 9]),
    )


def damage_failures(ledger: Ledger, raw: Any, slab: bytes, rng: Random) -> None:
    raw.hset(shard_key(ledger, 0, "failures"), slab, rng.randbytes(rng.randint(0, 9)))


DAMAGE: tuple[Callable[[Ledger, Any, bytes, Random], None], ...] = (
    damage_header, damage_words, damage_message_ids, damage_failures,
)  # fmt: skip


@dataclass
class Reported:
    """The outcomes of the good slabs, and the confirmed ones among them."""

    ledger: Ledger
    counts: dict[bytes, int]
    found: Counter[tuple[int, str, str]] = field(default_factory=Counter)

    def confirm(self) -> None:
        """Takes note of all that is reported, and confirms it."""
        entries = read_all(self.ledger, OutcomeReader(self.ledger.core, "s"))
        for entry in entries:
            mine = [one for one in entry.slabs if one.slab in self.counts]
            kept = replace(entry, slabs=tuple(mine))
            self.found.update(told(kept, self.counts))
        self.ledger.confirm("s", [entry.confirmation for entry in entries])


def send(ledger: Ledger, submission: Submission[Any], bad: set[int]) -> None:
    """Sends it twice, as if the first answer were lost."""
    refused: set[int] = set()
    for _ in range(2):
        try:
            ledger.send(submission)
        except UnreadableRecord as error:
            refused.update(error.anchors or {0})
        for call in submission.calls:
            call.reply = None
    assert refused <= bad


def call(reported: Reported, what: str, trees: list[Trees], bad: set[int], rng: Random) -> None:
    ledger = reported.ledger
    chosen = [one for one in trees if rng.random() < 0.7] or trees[:1]
    if what == "tick":
        ledger.tick(force=True)
    elif what == "confirm":
        reported.confirm()
    elif what == "track":
        slabs = [NewSlab(one.anchors, one.values, one.message_ids) for one in chosen]
        send(ledger, ledger.core.track(slabs, "s"), bad)
    else:
        dense = rng.random() < 0.5
        picked = [np.array([rng.random() < (0.95 if dense else 0.1) for _ in one.anchors]) for one in chosen]
        anchors = np.concatenate([one.anchors[own] for one, own in zip(chosen, picked, strict=True)])
        values = np.concatenate([one.values[own] for one, own in zip(chosen, picked, strict=True)])
        if rng.random() < 0.3:
            values = np.array([rng.getrandbits(63) for _ in values], np.int64)
        if what == "update":
            by = Mark(1, 7) if rng.random() < 0.5 else None
            send(ledger, ledger.core.update(anchors, values, 0, by, len(anchors)), bad)
        elif what == "fail":
            send(ledger, ledger.core.fail(anchors, b"bad"), bad)
        else:
            send(ledger, ledger.core.reset_timeout(anchors), bad)


def play(
    ledger: Ledger, raw: Any, trees: list[Trees], bad: int, plan: list[tuple[str, int]], hurt: bool
) -> Reported:
    """Plays calls, with damage to the first `bad` slabs between them or without."""
    good = {ids.slab_of(int(one.anchors[0])): one.count for one in trees[bad:]}
    reported = Reported(ledger, good)
    ledger.register_spout("s")
    tracked = [one for place, one in enumerate(trees) if place % 4 < 3]
    slabs = [NewSlab(one.anchors, one.values, one.message_ids) for one in tracked]
    assert set(ledger.track_slabs(slabs, spout="s")) == {"A"}
    firsts = {int(one.anchors[0]) for one in trees[:bad]}
    for what, seed in plan:
        if hurt:
            rng = Random(seed)
            for one in trees[:bad]:
                rng.choice(DAMAGE)(ledger, raw, ids.slab_of(int(one.anchors[0])), rng)
        call(reported, what, trees, firsts, Random(seed))
    return reported


def end(reported: Reported) -> Counter[tuple[int, str, str]]:
    for _ in range(4):
        reported.ledger.tick(force=True)
    reported.confirm()
    return reported.found


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from(SIZES), min_size=2, max_size=9),
    plan=st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 2**32)), max_size=12),
)
@example(sizes=[400, 400, 1, 1, 5, 5], plan=[("update", 1), ("update", 2), ("fail", 3), ("tick", 4)])
def test_what_is_damaged_changes_nothing_for_all_else(
    valkey_url: str, valkey_raw: Any, sizes: list[int], plan: list[tuple[str, int]]
) -> None:
    trees = [Trees(size) for size in sizes]
    number, bad = next(_numbers), len(trees) // 2
    hurt = opened(valkey_url, f"hurt-{number}", message_timeout=3600)
    sound = opened(valkey_url, f"sound-{number}", message_timeout=3600)
    found = play(hurt, valkey_raw, trees, bad, plan, hurt=True)
    expected = play(sound, valkey_raw, trees, bad, plan, hurt=False)
    for one in trees[bad:]:
        slab = ids.slab_of(int(one.anchors[0]))
        assert words(valkey_raw, hurt, slab) == words(valkey_raw, sound, slab)
    assert end(found) == end(expected)
    anchors = {int(anchor) for one in trees[bad:] for anchor in one.anchors}
    assert listed(hurt) & anchors == listed(sound) & anchors


def words(raw: Any, ledger: Ledger, slab: bytes) -> bytes | None:
    shard = ledger.core.shards[0]
    found: bytes | None = raw.hget(shard.ones, slab) if ids.is_one(slab) else raw.get(shard.vector(slab))
    return found


def listed(ledger: Ledger) -> set[int]:
    """The anchors of all trees that failed or expired, page by page."""
    found: set[int] = set()
    cursor = None
    while True:
        page = ledger.run(failures.page(ledger.core, limit=1000, cursor=cursor))
        found.update(tree.anchor for tree in page.trees)
        if (cursor := page.cursor) is None:
            return found


@settings(max_examples=100)
@given(
    whole=st.binary(max_size=64) | st.builds(lambda n: b"\x05\0\0\0\x01\0" + bytes(n), st.integers(6, 10)),
    part=st.binary(max_size=64),
)
@example(whole=b"", part=b"")
def test_server_and_spout_read_the_same(valkey_url: str, valkey_raw: Any, whole: bytes, part: bytes) -> None:
    ledger = opened(valkey_url, f"agree-{next(_numbers)}")
    Trees(1).track(ledger)
    stream = ledger.core.shards[0].outcomes("s")
    add: Any = valkey_raw.xadd
    add(stream, {"status": "acked", "at": 1, "reason": "", "whole": whole, "part": part})
    entry_id = add(stream, {"status": "acked", "at": 1, "reason": "", "whole": whole, "part": part})
    said = digest({b"status": b"acked", b"at": b"1", b"whole": whole, b"part": part})
    assert ledger.confirm("s", [Confirmation(0, entry_id, said)]) == 0
    refused = ledger.run(unreadable(ledger.core))
    entries = read_all(ledger, OutcomeReader(ledger.core, "s"))
    assert len(entries) == 1 - refused
    assert ledger.run(unreadable(ledger.core)) == 2 * refused


pytestmark = pytest.mark.timeout(300)
