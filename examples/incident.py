"""An incident to practise on: nine ill topologies, two muted ones, and well ones, 200 in all.

python -m examples.incident [--url redis://127.0.0.1:6379/0] [--seconds 60]

Look at it with `acker serve --url ...` or `acker topologies --url ...`. Each ill topology has a trouble of
another kind, and `ILL` says which, at what step and since when: try to find out before you read it. With
--seconds, records flow through some well topologies, and payments go on to fail.
"""

import argparse
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from acker import Topology, TrackRejected, Tuple
from acker.embedded import EmbeddedServer
from acker.inspect import scripts
from acker.inspect.operate import activity, pauses
from acker.inspect.operate.activity import Action, Noting
from acker.inspect.topology import health
from acker.inspect.topology.pace import STEADY, Pace
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.store import keys
from acker.store.operation import command
from acker.streams import SpoutOptions, Stream, StreamReader, StreamSpout
from acker.streams.spouts import settler

TOPOLOGIES = 200
SLOW = 1.5
"""Seconds after which a thumbnail or the index of the search is late: thresholds of their health say so."""


@dataclass(frozen=True, slots=True)
class Ill:
    """An ill topology.

    code: the code of its trouble in health. place: the node of its graph, "" where the whole topology is ill.
    says: some words of its health. age: seconds since it began, None where it begins with the program.
    cause: some words that its button leads to.
    """

    topology: str
    code: str
    place: str
    says: str
    age: float | None
    cause: str = ""


ILL = (
    Ill("imports", "full", "", "tracks are rejected", 48 * 60, "file-7"),
    Ill("billing", "expiring", "spout:invoices", "40 of 100 trees expired", 25 * 60, "message timeout"),
    Ill(
        "payments",
        "failing",
        "step:authorize",
        "trees failed so far, 40%",
        12 * 60,
        "card service answered 503",
    ),
    Ill("sessions", "nearly-full", "", "holds 90% of what it may", 3 * 60, "file-7"),
    Ill("letters", "dead-letters", "spout:mails", "3 dead letters", 26 * 3600, "no such address"),
    Ill("sensors", "silent", "spout:readings", "readings tracked nothing for", 17 * 60, "readings"),
    Ill("thumbnails", "slow", "", "tree in a hundred took", 9 * 60),
    Ill("audit", "unheard", "stream:events", "events has no subscription", 5 * 60, "nobody has to ack"),
    Ill("search", "behind", "step:index", "500 rows of stream documents wait for index", None, "nobody"),
)
"""The ill topologies, the critical ones first, and then the longest first."""
MUTED = ("reports", "backfill")
REGIONS = ("lisbon", "porto", "madrid", "paris", "berlin", "vienna", "warsaw", "oslo", "athens", "dublin")
WORK = (
    "orders", "stock", "prices", "carts", "refunds", "returns", "reviews", "clicks", "offers", "routes",
    "parcels", "scans", "taxes", "quotes", "leads", "calls", "visits", "badges", "shifts", "meters",
)  # fmt: skip


def make(url: str) -> None:
    """Makes the topologies in a store that has none of their names. It takes some seconds."""
    with ExitStack() as stack:

        def topology(name: str, **settings: float) -> Topology:
            settings = {"ackers": 1, "message_timeout": 3600.0, **settings}
            return stack.enter_context(Topology(url, name, **settings))  # type: ignore[arg-type]

        images = _emit(thumbnails := topology("thumbnails", message_timeout=60.0), "images", 12)
        begun = time.monotonic()
        _behind(topology("search", message_timeout=60.0))
        _expire(topology("billing"))
        _fail(topology("payments"))
        _fill(topology("imports", high_water_mark=100), 130)
        _fill(topology("sessions", high_water_mark=100), 90)
        _fall_silent(topology("sensors"))
        _bury(topology("letters"))
        _send(topology("audit"))
        _mute(topology("reports"))
        _pause(topology("backfill"))
        for name in well():
            _work(topology(name), 3)
        # A latency is read from the histogram with an error of 9%.
        time.sleep(max(0.0, 1.2 * SLOW - (time.monotonic() - begun)))
        _resize(thumbnails, images)
        for ill in ILL:
            _note(stack.enter_context(Topology(url, ill.topology)), ill)


def well() -> Iterator[str]:
    """The names of the well topologies."""
    names = (f"{region}-{work}" for work, region in itertools.product(WORK, REGIONS))
    return itertools.islice(names, TOPOLOGIES - len(ILL) - len(MUTED))


def flow(url: str, seconds: float, stop: threading.Event | None = None) -> None:
    """Lets records flow through ten well topologies and payments, a beat each second, until `stop` is set."""
    stop = stop or threading.Event()
    with ExitStack() as stack:
        names = itertools.islice(well(), 10)
        busy = [stack.enter_context(Topology(url, name)) for name in names]
        payments = stack.enter_context(Topology(url, "payments"))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not stop.wait(1.0):
            for number, topology in enumerate(busy):
                _work(topology, 2 + 3 * number)
            _fail(payments, 10)


# The parts of the incident


def _expire(topology: Topology) -> None:
    """Forty of a hundred invoices are taken and never acked."""
    tuples = _emit(topology, "invoices", 100)
    _ack(topology, "charge", tuples[40:])
    for _ in range(3):
        topology.tick(force=True)


def _fail(topology: Topology, count: int = 100) -> None:
    """Two of five payments fail by one cause."""
    spout, bolt = topology.spout("payments"), topology.bolt("authorize")
    for number in range(count):
        [payment] = spout.emit(f"payment-{time.time_ns()}")
        if number % 5 < 2:
            bolt.fail(payment, f"payment {number}: the card service answered 503")
        else:
            bolt.ack(payment)
    topology.flush()
    _confirm(topology, "payments")


def _fill(topology: Topology, count: int) -> None:
    """Nobody acks; what is over the high-water mark is rejected."""
    spout = topology.spout("files")
    for number in range(count):
        with suppress(TrackRejected):
            spout.emit(f"file-{number}")
    topology.flush()


def _behind(topology: Topology) -> None:
    """An hourly Spark job does not run: its rows wait, and the clock of their trees stands still."""
    ledger = topology.ledger
    ledger.run(health.set_thresholds(ledger.core, {"silence": 3600.0, "behind": SLOW / 60.0}))
    Stream(ledger, "documents").subscribe("index")
    step = Step("index", "bolt", "app-7", "hourly index", "query 7", batch=17, reads=("documents",))
    ledger.run(step_registry.register(ledger.core, step))
    rows = pa.table({"id": [f"document-{number}" for number in range(500)]})
    StreamSpout(ledger, SpoutOptions("crawler", "documents", "id")).write(rows)


def _resize(topology: Topology, images: list[Tuple]) -> None:
    """Images took longer than their threshold allows."""
    limits = {"latency": SLOW / 60.0}
    topology.ledger.run(health.set_thresholds(topology.ledger.core, limits))
    _ack(topology, "resize", images)


def _fall_silent(topology: Topology) -> None:
    """A spout tracked each few seconds, and stopped. A service saw it: here its notes are written at once."""
    _work(topology, 20, "readings")
    ledger = topology.ledger
    ledger.run(health.health(ledger.core, note=True))
    key = keys.health(ledger.core.config.name)
    [pace] = ledger.store.send([command("HGET", key, "pace:readings")])
    seen = Pace.load(pace)
    assert seen is not None
    steady = replace(seen, worked=seen.looked - 17 * 60, gap=4.0, gaps=STEADY)
    ledger.store.send([command("HSET", key, "pace:readings", steady.dump())])


def _bury(topology: Topology) -> None:
    """Mails were given up after their only attempt."""
    ledger = topology.ledger
    rows = {"id": [f"mail-{number}" for number in range(40)], "to": ["ann@example.com"] * 40}
    StreamSpout(ledger, SpoutOptions("mails", "outbox", "id", attempts=1)).write(pa.table(rows))
    reader = StreamReader(ledger, "outbox")
    anchors = [int(str(row["_acker"])) for row in reader.rows()]
    ledger.fail(anchors[:3], "ann@example.com: no such address")
    reader.ack_all()
    settler.settle(ledger)


def _send(topology: Topology) -> None:
    """A stream of Kafka has a sender, and nobody has declared that he reads it."""
    bolt, outgoing = topology.bolt("publish"), topology.outgoing("events", segment_rows=10)
    events = _emit(topology, "changes", 10)
    outgoing.stamps(events)
    bolt.ack_many(events)
    topology.flush()


def _mute(topology: Topology) -> None:
    """A trouble that somebody knows."""
    _fail(topology, 50)
    core = topology.ledger.core
    reason = "the feed of yesterday is broken; a new one comes in the morning"
    topology.ledger.run(health.mute(core, "failing", by="ann", reason=reason, seconds=8 * 3600.0))
    _wrote(topology, "ann", "mute", {"code": "failing"}, reason)


def _pause(topology: Topology) -> None:
    """A spout that somebody has paused."""
    _work(topology, 20, "rows")
    topology.ledger.run(pauses.pause(topology.ledger.core, "rows", by="bob", reason="after the sale"))
    _wrote(topology, "bob", "pause-spout", {"spout": "rows"}, "after the sale")


def _wrote(topology: Topology, who: str, action: Action, target: dict[str, object], reason: str) -> None:
    """Notes a write, as the command line does."""
    noted = Noting(who, False, "cli", action, target, reason=reason)
    topology.ledger.run(activity.note(topology.ledger.core, noted))


def _work(topology: Topology, count: int, spout: str = "records") -> None:
    """Records come, and are done."""
    _ack(topology, "store", _emit(topology, spout, count))
    _confirm(topology, spout)


def _note(topology: Topology, ill: Ill) -> None:
    """The notes of a service that has seen the trouble for so long."""
    core = topology.ledger.core
    topology.ledger.run(health.health(core, note=True))
    if ill.age is not None:
        since = {f"since:{ill.code}": f"{time.time() - ill.age:.3f}"}
        topology.ledger.store.send([scripts.note_health(ill.topology, since, {}, [])])


# Records


def _emit(topology: Topology, spout: str, count: int) -> list[Tuple]:
    source = topology.spout(spout)
    tuples = [source.emit(f"{spout}-{time.time_ns()}")[0] for _ in range(count)]
    topology.flush()
    return tuples


def _ack(topology: Topology, bolt: str, tuples: list[Tuple]) -> None:
    topology.bolt(bolt).ack_many(tuples)
    topology.flush()


def _confirm(topology: Topology, name: str) -> None:
    spout = topology.spout(name)
    for outcome in spout.outcomes(timeout=0):
        spout.confirm(outcome)
    topology.flush()


@contextmanager
def _store(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with EmbeddedServer(append_only=False) as server:
        print(f"acker serve --url {server.url}")
        yield server.url


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", help="default: a server of its own, until Ctrl-C")
    parser.add_argument("--seconds", type=float, default=0.0, help="records flow for so long afterwards")
    options = parser.parse_args()
    with _store(options.url) as store, suppress(KeyboardInterrupt):
        make(store)
        flow(store, options.seconds if options.url else options.seconds or 1e9)
