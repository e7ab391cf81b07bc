"""A topology with something of nearly each kind of key."""

import pyarrow as pa

from acker.drpc import scripts as calling
from acker.inspect.locate import servers
from acker.inspect.operate import activity, pauses
from acker.inspect.operate.activity import Noting
from acker.inspect.topology import health, history
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.settings import topologies
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.tick import tick
from acker.lines import Gather, Line
from acker.store import function_keys, keys
from acker.store.operation import command
from acker.streams import StreamWriter
from acker.streams.commits import release
from acker.streams.log.segments import new_hex_id
from acker.streams.sources import reached
from acker.streams.sources.reached import Position
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.streams.spouts.rereading import Rereader
from tests.helpers.builders.ledgers import Trees, confirm_all, opened
from tests.helpers.builders.streaming import take


def filled(url: str, name: str) -> Ledger:
    """A topology with something of nearly each kind of key."""
    ledger = opened(url, name, ackers=2)
    core = ledger.core
    Trees(600).track(ledger).complete(ledger, 0)
    Trees(40).track(ledger).complete(ledger, *range(20))
    some = Trees(5).track(ledger)
    ledger.fail(some.anchors[:2], "bad")
    confirm_all(ledger)
    ledger.fail(some.anchors[2:4], "bad")
    early = Trees(3)
    early.complete(ledger, 0)
    ledger.fail(early.anchors[1:2], "too early")
    spout = StreamSpout(ledger, SpoutOptions("kept", "lines", "id", attempts=1, offset="id"))
    for subscription in ("one", "two"):
        take(ledger, "lines", subscription)
    [roots] = spout.write(pa.table({"id": range(4)}))
    ledger.fail(roots.anchors()[:1], "bad")
    settler.settle(ledger)
    by_id = StreamSpout(ledger, SpoutOptions("by_id", "by_id", "id", attempts=2), ids=["id"])
    [roots] = by_id.write(pa.table({"id": range(3)}))
    ledger.fail(roots.anchors()[:1], "bad")
    assert Rereader(ledger, "by_id", lambda ids: ids).step() == 1
    writer = StreamWriter(ledger, "words")
    writer.write(pa.table({"word": ["to", "be"]}))
    batch = take(ledger, "lines", "one", reader=new_hex_id())
    ledger.run(release.give_back(core, "lines", batch.slot, batch.reader))
    take(ledger, "lines", "two")
    ledger.run(step_registry.register(core, Step("split", "bolt", "app")))
    by = ledger.run(step_totals.mark(core, "split"))
    ledger.submit(core.update(Trees(900).track(ledger).anchors, ids.new_ids(900), 0, by, 900).calls)
    ledger.run(health.set_thresholds(core, {"failed": 0}))
    ledger.run(activity.note(core, Noting("ann", True, "rest", "set-thresholds", {"failed": 0})))
    ledger.store.send([command("XADD", keys.activity(name, "chart_marks"), "*", "mark", 1)])
    line = Line(ledger, "line", [Gather("gathers")])
    line.step("pass", reads="asks")(lambda row, out: out.emit("gathers", row))
    asks = StreamSpout(ledger, SpoutOptions("asks", "asks", "id", line="line"))
    [worker] = line.workers()
    worker.work()  # subscribes
    asks.write(pa.table({"id": range(4)}))
    assert worker.work() == 1
    assert ledger.store.send([command("ZCARD", keys.Stream(name, "gathers").gathering)]) == [1]
    called = function_keys.Function(name, "asks")
    [seen] = ledger.run(topologies.read_marks([called.removals]))
    calls = [calling.begin_call(core.config, called, one, "caller", 60_000, 10, seen) for one in ("a", "b")]
    ledger.store.send(calls)
    [begun] = ledger.store.send([command("HGET", called.calls, "a")])
    answer = "a", "0", "f b", " b", 3600, ("f f", "f f"), True, begun or b""
    ledger.store.send([calling.answer_call(core.config, called, *answer)])
    assert ledger.run(history.record(core)) is not None
    for _ in range(3):
        ledger.run(tick.rotate(core, force=True))  # sets aside what nobody drains
    Trees(1).track(ledger)
    ledger.run(servers.note(core))
    ledger.run(reached.note(ledger.core, "s", [Position("group/topic/0", "id", False, 0, 9, {})]))
    ledger.run(pauses.pause(core, "asks", by="ann"))
    ledger.store.send([command("XADD", keys.Stream(name, "words").drops, "*", "segments", 1, "rows", 2)])
    return ledger
