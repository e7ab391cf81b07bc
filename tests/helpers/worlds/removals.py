"""The world of removals: processes remove a topology, beside a ticker and a service that look after it."""

import re
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa

from acker.errors import UnknownTopology
from acker.inspect.operate.removal import remove
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.inspect.topology import health, history
from acker.ledger.calls import idempotence
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import topologies
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.client import Store
from acker.store.operation import Operation
from acker.streams import SpoutOptions, StreamReader, StreamSpout, StreamWriter
from acker.streams.spouts import settler
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faults.set_backs import moment
from tests.helpers.faults.simulator import World

ROWS = pa.table({"id": range(4)})


class RemovalWorld(World):
    """A topology with trees, streams, kept rows and a dead letter, and another one, which stays.

    The model: when a removal has come to its end, by one process or by several in turn, no key of the
    topology is left without a time to live, whatever a ticker, a service or a job writes meanwhile, or a late
    copy of their calls; and the other topology has what it had.
    """

    actors: ClassVar = ("remove", "remove_too", "ticker", "service", "job")
    scripts: ClassVar = (
        "SREM", "XRANGE", "HRANDFIELD", "HDEL", "UNLINK", "rotate", "drain", "note_health", "apply_calls",
        "track", "update", "fail", "register_spout",
    )  # fmt: skip
    settings: ClassVar = {"ackers": 2}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        super().__init__(url, cluster, seed)
        for ledger in (self.ledger, open_ledger(Store(url), "other", ackers=1)):
            self.fill(ledger)
        self.others = self.lasting("other")
        self.ledgers = {name: open_ledger(Store(url), "t") for name in self.actors}

    @staticmethod
    def fill(ledger: Ledger) -> None:
        """Writes something of each part."""
        Trees(40).track(ledger).complete(ledger, *range(20))
        ledger.fail(Trees(3).track(ledger).anchors, "bad")
        StreamReader(ledger, "lines")
        StreamWriter(ledger, "words").write(ROWS)
        [roots] = StreamSpout(ledger, SpoutOptions("kept", "lines", "id", attempts=1)).write(ROWS)
        ledger.fail(roots.anchors()[:1], "bad")
        settler.settle(ledger)
        ledger.tick(force=True)

    def open(self, name: str) -> Ledger:
        """A process that has opened the topology before it was removed."""
        return self.ledgers[name]

    def remove(self, ledger: Ledger) -> Operation[int]:
        """Removes the topology."""
        return remove("t", force=True)

    def remove_too(self, ledger: Ledger) -> Operation[int]:
        """Another one does."""
        return self.remove(ledger)

    def ticker(self, ledger: Ledger) -> Operation[None]:
        """A round of a ticker that has found the topology before."""
        assert HOOKS.before_rotation is not None
        expected = yield from tick.rotations(ledger.core, ledger.core.shards)
        yield from HOOKS.before_rotation(ledger.core)
        with suppress(UnknownTopology):
            yield from tick.tick(ledger.core, force=True, expected=expected, explain=HOOKS.explain)

    def service(self, ledger: Ledger) -> Operation[None]:
        """A service notes its readings."""
        yield from history.record(ledger.core)
        yield from health.health(ledger.core, note=True)

    def job(self, ledger: Ledger) -> Operation[None]:
        """A job that has opened the topology tracks trees, acks some and fails one."""
        core, trees = ledger.core, Trees(4)
        slab = NewSlab(trees.anchors, trees.values, trees.message_ids)
        with suppress(UnknownTopology):
            yield from topologies.register_spout(core.config, "late")
            yield from idempotence.send(core, core.track([slab], "late"))
            yield from idempotence.send(core, core.update(trees.anchors[:2], trees.values[:2]))
            yield from idempotence.send(core, core.fail(trees.anchors[3:], b"bad"))

    def lasting(self, name: str) -> dict[bytes, bytes]:
        """The keys of a topology that have no time to live, and their values."""
        own = re.compile(rb"acker:\{%s[}:/@]" % name.encode())
        return {key: dump for key, (dump, left) in moment(self.raw).items() if own.match(key) and not left}

    def check(self) -> None:
        """A removal goes on where another was cut; then nothing is left."""
        if self.begun["remove"] + self.begun["remove_too"]:
            with suppress(UnknownTopology):
                self.ledger.run(remove("t", force=True))
            left = self.lasting("t").keys()
            assert not left
            assert self.ledger.run(topologies.names()) == ["other"]
        assert self.lasting("other") == self.others
