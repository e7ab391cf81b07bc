"""Any history of calls, however cut up, mixed and resent, leaves the ledger as the model says.

After every step all of the store is compared with tests/helpers/models/model.py: each tree's state, the
buckets, each counter, and what the spouts learnt.
"""

import os
import random
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from acker.inspect.scripts import pause_spout
from acker.ledger import ids
from acker.ledger.calls.calls import Submission
from acker.ledger.calls.marks import Mark
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes.counts import COUNTERS
from acker.ledger.outcomes.outcomes import Entry, OutcomeReader
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.client import Store
from tests.helpers.models.leaks import assert_settled
from tests.helpers.models.ledger_state import assert_same, read_all, told, trees_of
from tests.helpers.models.model import Model, signed
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster(slow=True)

EXAMPLES, FEW = int(os.environ.get("ACKER_HISTORIES", "50")), 15
"""Histories on each kind of server."""
PHASES = tuple(Phase) if os.environ.get("ACKER_HISTORIES_SHRINK") else (Phase.explicit, Phase.generate)
"""A failing history is made shorter only when asked for: that takes minutes."""
SPOUTS = ("lines", "words")
WAYS = ("complete", "complete", "emit", "mixed")
REASONS = ("", "no such word", "ü" * 512)
THEN = ("nothing", "track", "track", "update", "update, track", "fail, track", "update, fail, rotate, track")
SEEDS = st.integers(0, 2**32 - 1)
CLIENTS = st.integers(0, 2)
SIZES = st.one_of(st.integers(1, 20), st.integers(1, 3), st.sampled_from([300, 512, 1100]))


@dataclass
class Planned:
    """A slab that a spout tracks sooner or later."""

    anchor: int
    values: list[int]
    message_ids: list[bytes]
    spout: str

    @property
    def slab(self) -> NewSlab:
        anchors = ids.anchors_from(self.anchor, len(self.values))
        return NewSlab(anchors, np.array(self.values, dtype=np.int64), self.message_ids)


def lose_replies(submission: Submission[Any]) -> None:
    """Cuts the connection after the calls took effect, before their replies come."""
    for call in submission.calls:
        call.reply = None


class Histories(RuleBasedStateMachine):
    """Three clients of one topology, and the model of it."""

    url: str

    @initialize(ackers=st.integers(1, 3), mark=st.sampled_from([60, 1500, 1_000_000]))
    def open(self, ackers: int, mark: int) -> None:
        name = f"history-{uuid.uuid4().hex}"
        self.raw = raw_client(self.url)
        self.raw.flushall()
        self.clients = [
            open_ledger(Store(self.url), name, ackers=ackers, high_water_mark=mark) for _ in range(3)
        ]
        self.model = Model(ackers, mark)
        self.readers: dict[str, OutcomeReader] = {}
        self.planned: list[Planned] = []
        self.unconfirmed: list[tuple[str, Entry]] = []
        self.sent: list[Submission[Any]] = []
        self.forgot = False

    def counts(self) -> dict[bytes, int]:
        return {ids.slab_of(plan.anchor): len(plan.values) for plan in self.planned}

    def send(self, ledger: Ledger, submission: Submission[Any], resent: bool) -> Any:
        """Sends a submission; when `resent`, once more after the replies were lost, with the same answer."""
        result = ledger.send(submission)
        if resent:
            lose_replies(submission)
            assert ledger.send(submission) == result
            self.model.counters["duplicates"] += len(submission.calls)
        self.sent.append(submission)
        return result

    def pick(self, chance: random.Random) -> list[int]:
        """Some anchors: of one slab or of several, a few trees or a long run, also beyond the last tree."""
        chosen: list[int] = []
        for plan in chance.sample(self.planned, min(len(self.planned), chance.choice([1, 1, 2, 5]))):
            count = len(plan.values)
            way = chance.choice(["all", "run", "few", "one", "first", "beyond"])
            if way == "all":
                indexes = list(range(count))
            elif way == "run":
                start = chance.randrange(count)
                indexes = list(range(start, chance.randint(start, count - 1) + 1))
            elif way == "few":
                indexes = chance.sample(range(count), min(count, 4))
            elif way == "one":
                indexes = [chance.randrange(count)]
            elif way == "first":
                indexes = [0]
            else:
                indexes = list(range(chance.randrange(count), min(4096, count + chance.choice([1, 2, 40]))))
            chosen += [plan.anchor + ids.STEP * index for index in indexes]
        return chosen

    def missing(self, anchor: int) -> int:
        """The delta that completes a tree, as far as it can be known."""
        slab = self.model.slabs.get(ids.slab_of(anchor))
        tree = slab.trees.get(ids.index_of(anchor)) if slab else None
        if slab and slab.tracked:
            return tree.value if tree else 0
        planned = {
            plan.anchor + ids.STEP * index: value
            for plan in self.planned
            for index, value in enumerate(plan.values)
        }.get(anchor, 0)
        return (tree.value if tree else 0) ^ planned

    @precondition(lambda self: len(self.planned) < 14)
    @rule(size=SIZES, seed=SEEDS, spout=st.sampled_from(SPOUTS), then=st.sampled_from(THEN))
    def plan(self, size: int, seed: int, spout: str, then: str) -> None:
        chance = random.Random(seed)
        # No two slabs of one name, also where two seeds are the same.
        number = (chance.randrange(1, 1 << 43) << 4 | len(self.planned)) * 16 + chance.randrange(16)
        zeros = chance.choice([0.0, 0.0, 0.3])
        values = [0 if chance.random() < zeros else signed(chance.getrandbits(64)) for _ in range(size)]
        message_ids = [b"%d" % index * chance.choice([0, 1, 9]) for index in range(size)]
        anchor = (number << 13) % (1 << 63) | 1
        if size == 1 and chance.random() < 0.7:  # else a slab that may have many, and has one
            anchor = (anchor | chance.randrange(4096)) - (1 << 63)
        self.planned.append(Planned(anchor, values, message_ids, spout))
        # Left to chance alone, few slabs get far within one history.
        if "update" in then:
            self.update(0, seed, False, "complete")
        if "fail" in then:
            self.fail(1, seed, False, "early")
        if "rotate" in then:
            self.rotate(0)
        if "track" in then:
            self.track(2, seed, False, True)

    @precondition(lambda self: self.planned)
    @rule(client=CLIENTS, seed=SEEDS, resent=st.booleans(), last=st.booleans())
    def track(self, client: int, seed: int, resent: bool, last: bool) -> None:
        chance, ledger = random.Random(seed), self.clients[client]
        many = 1 if last else chance.randint(1, len(self.planned))
        plans = self.planned[-1:] if last else chance.sample(self.planned, many)
        plans = [plan for plan in plans if plan.spout == plans[0].spout]
        if not last and chance.random() < 0.2:
            plan = plans[-1]
            values = [*plan.values[:-1], 1 + plan.values[-1] % 7]
            plans[-1] = Planned(plan.anchor, values, plan.message_ids, plan.spout)
        spout = plans[0].spout
        self.readers.setdefault(spout, OutcomeReader(ledger.core, spout))
        letters = self.send(ledger, ledger.core.track([plan.slab for plan in plans], spout), resent)
        expected = [self.model.track(plan.anchor, plan.values, plan.message_ids, spout) for plan in plans]
        assert letters == expected

    @precondition(lambda self: self.planned)
    @rule(client=CLIENTS, seed=SEEDS, resent=st.booleans(), way=st.sampled_from(WAYS))
    def update(self, client: int, seed: int, resent: bool, way: str) -> None:
        chance, ledger = random.Random(seed), self.clients[client]
        deltas = {}
        for anchor in self.pick(chance):
            completes = way == "complete" or (way == "mixed" and chance.random() < 0.5)
            deltas[anchor] = self.missing(anchor) if completes else chance.getrandbits(64)
        # What is sent is cut up and shuffled: it folds to the same.
        pairs = [(anchor, signed(delta)) for anchor, delta in deltas.items()]
        for place in chance.sample(range(len(pairs)), len(pairs) // 3):
            anchor, delta = pairs[place]
            part = signed(chance.getrandbits(64))
            pairs[place] = (anchor, delta ^ part)
            pairs.append((anchor, part))
        if chance.random() < 0.5:
            chance.shuffle(pairs)
        anchors = np.array([anchor for anchor, _ in pairs], dtype=np.int64)
        by = Mark(seed % 3, 7) if seed % 2 else None  # the mark of a step changes nothing
        values = np.array([delta for _, delta in pairs], dtype=np.int64)
        submission = ledger.core.update(anchors, values, 0, by, len(pairs))
        updated = self.send(ledger, submission, resent)
        expected = self.model.update({anchor: delta for anchor, delta in deltas.items() if delta})
        assert (updated.late, updated.orphaned) == (expected, 0)

    @precondition(lambda self: self.planned)
    @rule(client=CLIENTS, seed=SEEDS, resent=st.booleans(), reason=st.sampled_from(REASONS))
    def fail(self, client: int, seed: int, resent: bool, reason: str) -> None:
        ledger, chance = self.clients[client], random.Random(seed)
        anchors = self.pick(chance)[:300]
        twice = np.array(anchors + anchors[:2], dtype=np.int64)
        if chance.random() < 0.5:
            reasons = {anchor: f"{reason} {chance.randrange(4)}" for anchor in anchors}
            causes = [reasons[anchor].encode() for anchor in anchors] + [b"a later one"] * len(anchors[:2])
            submission = ledger.core.fail_each(twice, causes)
        else:
            reasons = dict.fromkeys(anchors, reason)
            submission = ledger.core.fail(twice, reason.encode())
        result = self.send(ledger, submission, resent)
        expected = self.model.fail(reasons)
        assert (result.failed, result.late, result.orphaned) == (*expected, 0)

    @precondition(lambda self: self.planned)
    @rule(client=CLIENTS, seed=SEEDS, resent=st.booleans())
    def reset_timeout(self, client: int, seed: int, resent: bool) -> None:
        ledger = self.clients[client]
        anchors = self.pick(random.Random(seed))[:300]
        moved = self.send(ledger, ledger.core.reset_timeout(np.array(anchors, dtype=np.int64)), resent)
        assert moved == self.model.reset_timeout(anchors)

    @rule(client=CLIENTS, spout=st.sampled_from(SPOUTS), resent=st.booleans(), on=st.booleans())
    def pause(self, client: int, spout: str, resent: bool, on: bool) -> None:
        core = self.clients[client].core
        calls = [pause_spout(shard, spout, "[1]" if on else "") for shard in core.shards]
        self.send(self.clients[client], Submission(calls, lambda calls: [one.reply for one in calls]), resent)
        (self.model.paused.add if on else self.model.paused.discard)(spout)

    @rule(client=CLIENTS)
    def rotate(self, client: int) -> None:
        assert (
            self.clients[client].run(tick.rotate(self.clients[client].core, force=True)) == self.model.ackers
        )
        self.model.rotate()

    @rule(client=CLIENTS)
    def drain(self, client: int) -> None:
        ticked = self.clients[client].run(tick.drain(self.clients[client].core))
        assert (ticked.expired, ticked.orphaned) == self.model.drain()

    @precondition(lambda self: self.sent)
    @rule(client=CLIENTS, pick=SEEDS)
    def an_old_call_arrives_again(self, client: int, pick: int) -> None:
        ledger, submission = self.clients[client], self.sent[pick % len(self.sent)]
        ledger.run(ledger.core.ask(submission.calls))
        self.model.counters["duplicates"] += len(submission.calls)

    @precondition(lambda self: not self.forgot)
    @rule()
    def the_store_forgets_its_scripts(self) -> None:
        self.forgot = True
        self.raw.script_flush()

    @rule(client=CLIENTS)
    def count(self, client: int) -> None:
        assert self.clients[client].counters() == {name: self.model.counters[name] for name in COUNTERS}

    @rule(client=CLIENTS)
    def read_outcomes(self, client: int) -> None:
        counts = self.counts()
        reported: Counter[tuple[str, int, str, str]] = Counter()
        for spout, reader in self.readers.items():
            for entry in read_all(self.clients[client], reader):
                reported.update((spout, *one) for one in told(entry, counts))
                self.unconfirmed.append((spout, entry))
        assert reported == Counter(self.model.reported)
        self.model.reported.clear()

    @precondition(lambda self: self.unconfirmed)
    @rule(client=CLIENTS, seed=SEEDS, again=st.booleans())
    def confirm(self, client: int, seed: int, again: bool) -> None:
        chance, ledger, counts = random.Random(seed), self.clients[client], self.counts()
        chance.shuffle(self.unconfirmed)
        most = chance.randint(1, len(self.unconfirmed))
        confirmed, self.unconfirmed = self.unconfirmed[:most], self.unconfirmed[most:]
        for spout, reader in self.readers.items():
            entries = [entry for owner, entry in confirmed if owner == spout]
            trees = [anchor for entry in entries for anchor in trees_of(entry, counts)]
            named = [entry.confirmation for entry in entries]
            reader.confirmed(named)  # else it takes the newest that it read for lost, and reads all again
            assert ledger.confirm(spout, named) == len(trees)
            assert not again or ledger.confirm(spout, named) == 0
            self.model.confirm(trees)

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        if hasattr(self, "model"):
            assert_same(self.raw, self.clients[0], self.model)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for _ in range(3):
            self.rotate(0)
            self.drain(1)
        self.read_outcomes(0)
        if self.unconfirmed:
            while self.unconfirmed:
                self.confirm(2, 0, True)
        self.the_store_is_as_the_model_says()
        assert not self.model.slabs
        assert_settled(self.raw)
        self.raw.close()


@pytest.mark.timeout(180)
def test_every_history_leaves_the_ledger_as_the_model_says(url: str, pytestconfig: pytest.Config) -> None:
    """With --slow, as in CI, of three times as many histories."""
    number = EXAMPLES if pytestconfig.getoption("--slow") else min(FEW, EXAMPLES)
    machine = type("AnyHistory", (Histories,), {"url": url})
    bounded = settings(max_examples=number, stateful_step_count=30, derandomize=True, phases=PHASES)
    run_state_machine_as_test(machine, settings=bounded)
