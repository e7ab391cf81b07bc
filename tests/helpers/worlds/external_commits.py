"""Commits of rows of external streams: a batch, and a world of drivers that commit it."""

import secrets
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from acker import Topology
from acker.errors import AckerError
from acker.ledger import ids
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.store.operation import Operation
from acker.streams.commits import commit as commits
from acker.streams.commits.contents import Commit
from acker.streams.commits.known import AtHand
from acker.streams.log import segments
from acker.streams.staging import staging, vectors
from acker.streams.staging.external import bits, declaring, receiving
from acker.streams.staging.external.rows import receipts, sending
from acker.streams.staging.external.rows.at_once import Given
from acker.streams.staging.external.rows.receipts import Receipt
from acker.streams.staging.external.rows.sending import Sending
from acker.streams.staging.external.rows.stamps import Seal, Stamp
from acker.streams.staging.external.segments import Stamped
from acker.streams.staging.staging import Staged
from tests.helpers.builders.external import source, work
from tests.helpers.faults.simulator import World

ROWS = 6


class Batch:
    """A batch of a step between `items` and `words`, of rows that a plain program has sent.

    at_once: its caller has at hand what its commit needs, as a driver has.
    """

    def __init__(self, topology: Topology, *, tracked: bool = True, at_once: bool = False) -> None:
        self.topology, self.ledger, self.at_once = topology, topology.ledger, at_once
        self.receipts = dict[str, Receipt]()
        topology.incoming("items", subscription="split")
        topology.incoming("words", subscription="count")
        self.headers = source(topology, ROWS, rows=1)
        if tracked:
            topology.flush()

    def anchors(self) -> list[int]:
        return [anchor for stamp in self._stamps() for anchor in stamp.anchors]

    def _stamps(self) -> list[Stamp]:
        external = self.ledger.run(declaring.declare(self.ledger.core, "items"))
        seal = Seal("t", "items", external.stamp_keys, external.number)
        found = [seal.read(dict(headers)["acker-stamp"]) for headers in self.headers]
        return [one for one in found if isinstance(one, Stamp)]

    def received(self) -> str:
        """Stages that all rows were worked on."""
        core = self.ledger.core
        external = self.ledger.run(declaring.declare(core, "items"))
        [slot] = external.seen
        worked = dict[tuple[str, int], set[int]]()
        for stamp in self._stamps():
            place = stamp.token, ids.shard_of_anchor(stamp.anchors[0], core.config.ackers)
            worked.setdefault(place, set()).add(stamp.position)
        staged_id = segments.new_hex_id()
        fails: receipts.Fails = {}
        bitmaps = {place: (bits.pack(positions), fails) for place, positions in worked.items()}
        found = Receipt("items", slot, external.epoch.decode(), 1, {}, receipts.packed(bitmaps))
        self.receipts[staged_id] = found
        if not self.at_once:
            self.ledger.store.send([receipts.stage(core, staged_id, [found], 3600)])
        return staged_id

    def sent(self) -> tuple[Sending, list[str]]:
        """Stages a segment of words, one of each row, as a task does; returns it, and its stamps."""
        core = self.ledger.core
        external = self.ledger.run(declaring.declare(core, "words"))
        anchors, begun = self.anchors(), external.now // 1000
        once = np.ones(len(anchors), np.int64)
        sent = Stamped(secrets.token_hex(14), segments.new_seed(), begun, once, ids.as_ids(anchors))
        segment, requests = sending.stage(core, sent, tuple(external.seen))
        self.ledger.store.send(requests)
        seal = Seal("t", "words", external.stamp_keys, external.number)
        stamps = [seal.write(Stamp(sent.token, at, begun, (anchor,))) for at, anchor in enumerate(anchors)]
        return Sending("words", external.number, external.key, ((segment, begun),)), stamps

    def work(self) -> tuple[Commit, list[str]]:
        sent, stamps = self.sent()
        return Commit(sent=(sent,), received=(self.received(),)), stamps

    def failed(self) -> tuple[Staged, int]:
        """Stages that the first row's tree fails, and the number of rows in its shard."""
        core, anchors = self.ledger.core, self.anchors()
        here = [ids.shard_of_anchor(anchor, core.config.ackers) for anchor in anchors]
        of = staging.stage_failures(core, 3600, np.array(anchors[:1], dtype=np.int64), ["bad"])
        return Staged("", failures=tuple(self.ledger.run(of))), here.count(here[0])

    def commit(self, number: int, found: Commit, core: Core | None = None) -> Operation[bool]:
        """The commit, by its caller."""
        core = self.ledger.core if core is None else core
        return commits.commit(core, "w", number, found, at_hand=self._at_hand(found))

    def _at_hand(self, found: Commit) -> AtHand | None:
        if not self.at_once:
            return None
        core, ours = self.ledger.core, [self.receipts[staged_id] for staged_id in found.received]
        parts = receiving.parts_of_rows(core, receipts.rows(ours))
        received = [key for part in parts for key, _ in part.places()]
        sent = [key for key, _ in sending.places(core, found.sent)]
        requests = [*map(receiving.head, received), *map(vectors.head, sent)]
        replies = self.ledger.store.send(requests) if requests else []
        heads = dict(zip(received, replies, strict=False))
        given = Given(ours, core.config.stamp_ttl, heads)
        staging = [
            receipts.stage(core, staged_id, [one], 3600)
            for staged_id, one in zip(found.received, ours, strict=True)
        ]
        return AtHand(staging, given=given, heads=dict(zip(sent, replies[len(received) :], strict=True)))

    def acked(self) -> int:
        return self.topology.counters()["acked"]

    def count(self, stamps: list[str]) -> None:
        """A step that acks words."""
        work(self.topology, [[("acker-stamp", stamp)] for stamp in stamps], stream="words")
        self.topology.flush()


class ExternalWorld(World):
    """A batch that two drivers commit: each has received the same rows, and has sent a word for each.

    By every second seed a driver has at hand what its commit needs. Nobody works on a word before the end of
    the history, so no tree is acked until then. After that all are, unless the store has lost something.
    """

    actors: ClassVar[tuple[str, ...]] = ("first", "second")
    scripts: ClassVar = (
        "begin_commit", "hold_external", "announce", "apply_staged", "receive", "note_received",
        "advance_commit", "chain",
    )  # fmt: skip
    settings: ClassVar[dict[str, Any]] = {"ackers": 2, "message_timeout": 600.0}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        self.topology = Topology(url, "t", linger=None)
        self.batch = Batch(self.topology, at_once=seed % 4 < 2)
        self.stamps = list[str]()

    def first(self, ledger: Ledger) -> Operation[None]:
        """A driver of the batch."""
        found, stamps = self.batch.work()
        self.stamps += stamps
        yield from self.batch.commit(0, found, ledger.core)

    def second(self, ledger: Ledger) -> Operation[None]:
        """Another driver of it."""
        return self.first(ledger)

    def check(self) -> None:
        """No tree is acked while its words are not counted, and each is when they are."""
        for _ in range(3):
            with suppress(AckerError):
                self.ledger.run(self.first(self.ledger))
        assert self.batch.acked() == 0
        with suppress(*[AckerError] * bool(self.simulator.losses)):
            self.batch.count(self.stamps)
        counters = Counter(self.topology.counters())
        if not self.simulator.losses:
            assert (counters["acked"], counters["late"], counters["orphaned"]) == (ROWS, 0, 0)

    def close(self) -> None:
        """Lets go of the store."""
        with suppress(AckerError):
            self.topology.close()
        super().close()
