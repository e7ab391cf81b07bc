"""The users of deploy/acker.acl: each role can do its work, and nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from redis.crc import key_slot

from acker import Topology, cli
from acker.drpc import calls, registry
from acker.errors import AckerError, StoreError
from acker.inspect.functions import call_progress, figures
from acker.inspect.locate.why import why
from acker.inspect.operate import ticker_hooks
from acker.inspect.operate.removal import remove
from acker.inspect.topology import history
from acker.inspect.topology.graph import graph
from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs.sections import SPOUT
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.ledger.tick import tick
from acker.lines import Gather, Line, coordinator
from acker.store import keys, scripts
from acker.store.client import Store
from acker.streams import Stream, StreamReader
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.counting import counting
from tests.helpers.builders.ledgers import Trees, confirm_all
from tests.helpers.builders.streaming import commit, stage, take
from tests.helpers.faces.api import calling, serving
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.rights import FILE, ROLES, Rights, cluster, users


@pytest.fixture
def rights(new_server: NewServer, kind: str, tmp_path: Path) -> Iterator[Rights]:
    with users(new_server, kind, tmp_path) as rights:
        yield rights


def granted(role: str) -> set[str]:
    """The commands of a role, in capitals."""
    [line] = [line for line in FILE.read_text().splitlines() if line.startswith(f"user acker-{role} ")]
    return {word[1:].upper() for word in line.split() if word[0] == "+"}


def of_script(script: scripts.Script) -> set[str]:
    """The commands that a script calls: it asks for them first."""
    code = re.sub(r"--[^\n]*", "", script.text)
    assert not re.search(r"(?<!p)call\((?!')", code), f"{script.name} calls a command that it computes"
    assert re.findall(r"may\('(\w+)'", code) == list(script.commands)
    return set(script.commands)


@pytest.mark.parametrize("name", scripts.load_all())
def test_no_script_makes_code_of_text(name: str) -> None:
    code = re.sub(r"--[^\n]*", "", scripts.get(name).text)
    assert not re.search(r"\b(load|loadstring|loadfile|dofile|setfenv)\b", code)
    assert not re.search(r"\b_G\b", code)  # where they could be found by a name that is put together


def test_only_what_acker_itself_calls_is_granted_to_anybody() -> None:
    root = FILE.parent.parent
    text = "\n".join(path.read_text() for part in ("acker", "api") for path in (root / part).rglob("*.py"))
    called = set(re.findall(r"(?:command\(|\[|\()\"([A-Z]+)\"", text))
    called |= set().union(*map(of_script, scripts.load_all().values()))
    connecting = {"AUTH", "HELLO", "INFO", "SELECT", "ASKING", "CLUSTER|SLOTS", "SCRIPT|LOAD"}
    connecting |= {"EVALSHA", "EVALSHA_RO", "WAIT", "SLOWLOG|GET"}
    for role in ROLES:
        assert granted(role) <= called | connecting
    # A command that a script comes to call belongs into the rights of the script's callers.
    assert set().union(*map(of_script, scripts.load_all().values())) <= set().union(*map(granted, ROLES))
    readers = [script for script in scripts.load_all().values() if script.reads]
    assert set().union(*map(of_script, readers)) <= granted("reader")
    assert len(readers) >= 5


def spout_works(url: str, name: str = "t") -> None:
    """Tracks, hears of outcomes, keeps rows, replays them and buries them."""
    topology = Topology(url, name, ackers=2)
    spout = topology.spout("s", max_spout_pending=10)
    [one] = spout.emit("m")
    bolt = topology.bolt("b")
    bolt.fail(one, "bad")
    topology.flush()
    for outcome in spout.outcomes(timeout=60.0):
        spout.confirm(outcome)
        break
    topology.close()
    kept = StreamSpout(topology.ledger, SpoutOptions("kept", "lines", "id", attempts=1, offset="id"))
    kept.write(pa.table({"id": range(4)}))
    # Another consumer of the stream would fail them; here it is enough that two of the trees fail.
    [roots] = StreamSpout(topology.ledger, SpoutOptions("kept", "failed", "id", attempts=1)).write(
        pa.table({"id": range(2)})
    )
    topology.ledger.fail(roots.anchors(), "bad")
    Line(topology.ledger, "line", [Gather("gathers")])
    asks = SpoutOptions("asks", "asks", "id", line="line")
    StreamSpout(topology.ledger, asks).write(pa.table({"id": range(4)}))


def executor_works(url: str, name: str = "t") -> None:
    """A bolt: reads a stream, emits into another, acks and fails, as Spark's tasks and commits do."""
    ledger = open_ledger(Store(url), name)
    inputs = take(ledger, "lines")
    staged = stage(ledger, ids.new_anchors(5))
    assert commit(ledger, 0, Commit((staged,), (inputs,)))
    reader = StreamReader(ledger, "words")
    assert sum(table.num_rows for table in reader.tables()) == 5
    assert reader.ack() == 1
    ledger.run(step_registry.register(ledger.core, Step("split", "bolt", "app")))
    assert Stream(ledger, "words").unsubscribe("default", ack=True) == 0
    worker = Worker(ledger, FunctionStep("pass", "asks", lambda row, out: out.emit("gathers", row)))
    assert worker.work() == 1
    assert ledger.run(coordinator.step(ledger.core, OutcomeReader(ledger.core, SPOUT))) == 1
    trees = Trees(3)
    trees.complete(ledger, 0)
    ledger.fail(trees.anchors[1:2], "bad")
    ledger.reset_timeout(trees.anchors)


def service_works(url: str, name: str = "t") -> None:
    """Runs the service's own work, and the requests of its users."""
    ledger = open_ledger(Store(url), name, create=False)
    assert ledger.run(history.record(ledger.core)) is not None
    for _ in range(2):
        settler.settle(ledger)
        for _ in range(3):
            ledger.run(tick.tick(ledger.core, force=True, explain=ticker_hooks.explain))
    settler.settle(ledger)
    letters = ledger.run(dead_letters.page(ledger.core)).letters
    ledger.run(dead_letters.replay(ledger.core, letters[0].id))
    ledger.run(dead_letters.discard(ledger.core, [letters[1].id]))
    with serving(url, tokens="operate:operators-token-1") as address, calling(address) as client:
        at = f"/topologies/{name}"
        for path in ("/topologies", at, f"{at}/trees", f"{at}/outcomes", f"{at}/stats", f"{at}/dead-letters"):
            assert client.get(path).status_code == 200, path
        anchor = str(ids.new_anchors(1)[0])
        messages = [
            {"type": "track", "spout": "s", "anchor": anchor, "value": "7", "message_id": "m"},
            {"type": "ack", "anchor": anchor, "value": "7"},
        ]
        assert client.post(f"{at}/messages", json={"messages": messages}).status_code == 200
        for call in ("fail", "reset-timeout"):
            answer = client.post(f"{at}/{call}", json={"anchors": [anchor]})
            assert answer.status_code == 200, answer.text
        assert client.get(f"{at}/trees/{anchor}").status_code == 200
        noted = client.get(f"{at}/activity").json()["activity"]
        assert [entry["action"] for entry in noted] == ["reset", "fail"]


def reader_works(url: str, name: str = "t") -> None:
    """Every look that there is at a topology."""
    for words in (
        ("topologies",), ("stats", name), ("trees", name), ("dead-letters", name), ("tree", name, "1"),
        ("find", name, "m"), ("find", name, "0"),
        ("why", name, "1"), ("stuck", name), ("failures", name), ("drops", name), ("lines", name),
        ("activity", name),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            cli.main([*words, "--url", url])
        assert end.value.code == (4 if words[0] in ("tree", "why") else 0), words  # there is no tree 1
    ledger = open_ledger(Store(url), name, create=False)
    ledger.run(step_registry.steps(ledger.core))
    ledger.counters()
    assert ledger.run(pages.trees(ledger.core)) is not None
    assert Stream(ledger, "lines").totals() is not None
    assert ledger.run(graph(ledger.core)).nodes
    trees = ledger.run(pages.trees(ledger.core)).trees
    assert trees
    for tree in trees:
        assert ledger.run(why(ledger.core, tree.anchor, rows=True)).tree is not None


@pytest.mark.cluster
def test_each_role_can_do_its_work(rights: Rights) -> None:
    spout_works(rights.url("spout"))
    executor_works(rights.url("executor"))
    service_works(rights.url("service"))
    reader_works(rights.url("reader"))
    confirm_all(open_ledger(Store(rights.url("spout")), "t"))
    assert rights.denied() == []


@pytest.mark.cluster
def test_a_spout_works_on_functions_that_a_reader_sees_and_the_service_cancels(rights: Rights) -> None:
    topology = Topology(rights.url("spout"), "t", ackers=2)
    with counting().work(topology):
        assert topology.drpc("count").execute_many([2, 3], timeout=60) == [2, 3]
        answered = topology.drpc("count").begin(4)
        assert answered.future.result(60) == 4
    waits = topology.drpc("count").begin(5)
    waits.begun.result(60)
    reader = rights.url("reader")
    for words in (
        ("list",),
        ("show", "count"),
        ("show", "count", answered.request),
        ("show", "count", waits.request),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(["drpc", *words, "--url", reader])
        assert end.value.code == 0, words
    for role in ("reader", "service"):
        ledger = open_ledger(Store(rights.url(role)), "t", create=False)
        core, what = ledger.core, ledger.run(registry.find("count"))
        assert ledger.run(figures.figures(core, what)).pending == 1
        assert [one.request for one in ledger.run(call_progress.pending(core, what))] == [waits.request]
        assert len(ledger.run(call_progress.answered(core, what))) == 3
        for one in (answered, waits):
            assert ledger.run(call_progress.follow(core, what, one.request)) is not None
        if role == "service":
            assert ledger.run(calls.cancel(core, what, waits.request))
    confirm_all(topology.ledger)
    assert rights.denied() == []


def test_each_role_follows_a_slot_that_is_on_its_way(tmp_path: Path) -> None:
    with cluster("valkey-cluster", tmp_path) as (servers, rights):
        config = open_ledger(Store(rights.url("spout")), "t", ackers=2).config
        key = keys.config("t")
        source = servers.owner(key)
        target = (source + 1) % servers.masters
        servers.begin_move(key_slot(key), source, target)
        while servers.move_keys(key_slot(key), source, target, 10):
            pass
        for asked, role in enumerate(ROLES, start=1):
            assert open_ledger(Store(rights.url(role)), "t", create=False).config == config
            with servers.client(target) as client:
                assert client.info("commandstats")["cmdstat_asking"]["calls"] >= asked
        servers.end_move(key_slot(key), source, target)
        assert rights.denied() == []


def test_the_service_can_remove_a_topology_with_all_that_it_holds(rights: Rights) -> None:
    spout_works(rights.url("spout"))
    executor_works(rights.url("executor"))
    assert Store(rights.url("service")).run(remove("t", force=True)) > 0
    assert rights.denied() == []
    assert {rights.operator.ttl(key) == -1 for key in rights.operator.scan_iter()} == {False}


FORBIDDEN = (
    "FLUSHALL", "FLUSHDB", "KEYS *", "SCAN 0", "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG REWRITE",
    "EVAL return 0", "EVAL_RO return 0", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION FLUSH", "FUNCTION LIST",
    "ACL LIST", "ACL WHOAMI", "DEBUG SLEEP 0", "SHUTDOWN NOSAVE", "MONITOR", "CLIENT LIST", "CLIENT PAUSE 1",
    "CLUSTER NODES", "CLUSTER RESET", "REPLICAOF NO ONE", "SAVE", "BGREWRITEAOF", "SWAPDB 0 1", "PUBLISH a b",
    "SUBSCRIBE a", "MIGRATE h 1 k 0 1", "DUMP acker:topologies", "RESTORE k 0 v", "RANDOMKEY", "DBSIZE",
    "COPY acker:topologies k", "MOVE acker:topologies 1", "SORT acker:topologies", "MODULE LIST",
    "LATENCY RESET", "SLOWLOG RESET", "GET other", "SET other 1", "HGETALL other", "UNLINK other",
)  # fmt: skip
"""Operations that no role may do: each is an error at once, and changes nothing."""


@pytest.mark.parametrize("role", ROLES)
def test_no_role_can_do_what_none_has_to(rights: Rights, role: str) -> None:
    rights.operator.set("other", "1")
    for line in FORBIDDEN:
        words = line.split()
        arguments = [*words[:2], "0"] if words[0].startswith("EVAL") else words
        with pytest.raises(redis.exceptions.NoPermissionError):
            rights(role, *arguments)
    assert rights.operator.get("other") == b"1"
    assert rights.operator.delete("other") == 1


def test_a_reader_cannot_change_anything(rights: Rights) -> None:
    ledger = open_ledger(Store(rights.url("spout")), "t", ackers=1)
    trees = Trees(2).track(ledger)

    def everything() -> dict[bytes, bytes]:
        return {key: rights.operator.dump(key) for key in rights.operator.scan_iter()}

    before = everything()
    reader = open_ledger(Store(rights.url("reader")), "t")
    changes: list[Any] = [
        lambda: trees.complete(reader),
        lambda: reader.fail(trees.anchors, "bad"),
        lambda: reader.tick(force=True),
        lambda: reader.register_spout("another"),
        lambda: open_ledger(Store(rights.url("reader")), "new"),
        lambda: rights("reader", "DEL", "acker:topologies"),
    ]
    for change in changes:
        with pytest.raises((StoreError, redis.exceptions.NoPermissionError), match=r"(?i)permission"):
            change()
    flags = {info["name"].upper(): set(info["flags"]) for info in rights.operator.command().values()}
    assert not [name for name in granted("reader") if "write" in flags.get(name, ())]
    assert everything() == before


def test_an_executor_changes_neither_the_configuration_nor_what_spouts_keep(rights: Rights) -> None:
    spout_works(rights.url("spout"))
    executor = open_ledger(Store(rights.url("executor")), "t", create=False)
    for words in (
        ("HSET", "acker:{t}:config", "ackers", "1"), ("UNLINK", "acker:topologies"),
        ("HGETALL", "acker:{t@kept}:kept"), ("UNLINK", "acker:{t@kept}:dead"), ("GET", "acker:{t}:history:1"),
    ):  # fmt: skip
        with pytest.raises(redis.exceptions.NoPermissionError):
            rights("executor", *words)
    with pytest.raises(AckerError, match=r"(?i)permission"):
        executor.register_spout("another")
