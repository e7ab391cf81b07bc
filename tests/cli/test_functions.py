"""`acker drpc`: list, show, call, work, remove."""

import hashlib
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from acker.cli import functions
from acker.cli.app import run
from acker.cli.shared.stopping import Stop
from acker.collectors.topology import Topology
from acker.store import function_keys, keys
from acker.store.operation import command
from tests.helpers.builders.counting import counting
from tests.helpers.servers.servers import wait_until

COUNTING = "from tests.helpers.builders.counting import counting\n\nfunction = counting()\nother = 3\n"


def test_a_function_is_worked_on_called_and_removed_by_commands(
    valkey_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_to_count.py").write_text(COUNTING)
    monkeypatch.setenv("ACKER_URL", valkey_url)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert run(["drpc", "list"]) == 0
    assert "no functions" in capsys.readouterr().out
    worker = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("acker")),
            "drpc",
            "work",
            "mine_to_count:function",
            "--topology",
            "t",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert "working on function count of t" in worker.stderr.readline()
        assert run(["drpc", "call", "count", "3", "--key", "k"]) == 0
        assert json.loads(capsys.readouterr().out) == 3
        assert run(["drpc", "call", "count", '"bad"', "--key", "b"]) == 1
        assert "in step fan: bad arguments" in capsys.readouterr().err
        assert run(["drpc", "show", "count", hashlib.sha256(b"b").hexdigest()[:32]]) == 0
        assert capsys.readouterr().out == "failed in step fan: bad arguments\n"
        assert run(["drpc", "show", "count", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [step["workers"] for step in shown["steps"]] == [1, 1]
        assert (shown["pending"], shown["recent"]["answered"], shown["total"]["failed"]) == (0, 1, 1)
        assert run(["drpc", "show", "count"]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["last", "ten", "minutes", "1", "1", "0"] in [line[:6] for line in lines]
        assert ["failed", "fan", "bad", "arguments", "1"] in lines
        assert ["0", "calls", "without", "answer"] in lines
    finally:
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=60)
    request = hashlib.sha256(b"k").hexdigest()[:32]
    assert run(["drpc", "show", "count", request]) == 0
    assert capsys.readouterr().out == "answered 3\n"
    assert run(["drpc", "show", "count", "0" * 32]) == 4
    assert "no request" in capsys.readouterr().err
    assert run(["drpc", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["function"], listed["steps"], listed["waiting"]) == ("count", ["fan", "count"], 0)
    assert run(["drpc", "call", "count", "1", "--wait", "0.05"]) == 1
    assert "it waited for fan; without a worker: fan" in capsys.readouterr().err
    call = Topology(valkey_url, "t").drpc("count").begin(1)
    call.begun.result(30)
    assert run(["drpc", "show", "count", call.request]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["pending", "for", "fan"]
    assert run(["find", "t", ""]) == 4  # what keeps the sections of a line in order is no record
    assert "no record of that id" in capsys.readouterr().out
    assert run(["find", "t", call.request]) == 0
    assert "spout count" in capsys.readouterr().out
    assert run(["trees", "t", "--message-id", ""]) == 0
    assert "acker.sections" not in capsys.readouterr().out
    assert ["fan", "no", "workers"] in [line[:3] for line in lines]
    assert ["count", "waiting", "-", "0"] in lines
    assert run(["drpc", "show", "count", call.request, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [step["state"] for step in shown["steps"]] == ["no workers", "waiting"]
    assert run(["drpc", "remove", "count"]) == 1
    assert "1 calls without answer" in capsys.readouterr().err
    assert run(["drpc", "remove", "count", "--force"]) == 0
    assert run(["drpc", "call", "count", "1"]) == 4
    assert "no function 'count'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["call", "count", "{"], 2, "expected JSON"),
        (["work", "nothing", "--topology", "t"], 2, "expected MODULE:NAME"),
        (["work", "tests.drpc:nothing", "--topology", "t"], 4, "cannot be imported"),
        (["work", "tests.cli.test_functions:COUNTING", "--topology", "t"], 2, "to be a LinearDRPC"),
        (["work", "..relative:function", "--topology", "t"], 1, "cannot be imported: TypeError"),
        (["show", "\udcff"], 2, "function: expected 1 to 64 of"),
        (["call", "", "1"], 2, "function: expected 1 to 64 of"),
    ],
)
def test_what_cannot_be_is_refused(
    valkey_url: str, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    assert run(["drpc", *words, "--url", valkey_url]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:", "SyntaxError: "),
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("import sys; sys.exit(7)", "SystemExit: 7"),
        ("class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E", "E"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_a_line(
    valkey_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    (tmp_path / "broken_by_hand.py").write_text(text)
    monkeypatch.setenv("ACKER_URL", valkey_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run(["drpc", "work", "broken_by_hand:function", "--topology", "t"]) == 1
    assert f"cannot be imported: {said}" in capsys.readouterr().err


def test_a_request_that_is_none_is_refused(valkey_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    counting().register(Topology(valkey_url, "t", ackers=1))
    for request in ("xx", "\udcff", "A" * 32):
        assert run(["drpc", "show", "count", request, "--url", valkey_url]) == 2
        assert "expected 32 hexadecimal digits" in capsys.readouterr().err


def test_a_command_whose_function_is_registered_otherwise_meanwhile_ends(
    valkey_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counted_by_hand.py").write_text(COUNTING)
    monkeypatch.setenv("ACKER_URL", valkey_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(functions, "stop_on_signals", Stop)
    topology = Topology(valkey_url, "t")
    working = partial(topology.ledger.store.send, [command("HEXISTS", keys.FUNCTIONS, "count")])

    def register_otherwise() -> None:
        wait_until(lambda: working() == [1])
        client = topology.drpc("count")
        assert client.execute(2) == 2
        record = counting(timeout=5.0).description("t").dump()
        topology.ledger.store.send([command("HSET", keys.FUNCTIONS, "count", record)])

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(register_otherwise)
        assert run(["drpc", "work", "counted_by_hand:function", "--topology", "t"]) == 1
        other.result(60)
    assert "function 'count' was registered otherwise" in capsys.readouterr().err


def test_threads_that_cannot_be_are_refused_before_the_topology_is_made(
    valkey_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "_found", lambda _: counting())
    assert run(["drpc", "work", "m:f", "--topology", "t", "--threads", "0", "--url", valkey_url]) == 2
    assert "threads: expected int from 1 to 64, got 0" in capsys.readouterr().err
    assert run(["topologies", "--json", "--url", valkey_url]) == 0
    assert json.loads(capsys.readouterr().out)["topologies"] == []


def test_a_tick_by_hand_settles_ended_calls(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKER_URL", valkey_url)
    with Topology(valkey_url, "t", ackers=1) as topology:
        counting().register(topology)
        asked = topology.drpc("count").begin(2)
        asked.begun.result(60)
        send, slabs = topology.ledger.store.send, keys.Spout("t", "count").slabs
        send([command("ZADD", function_keys.Function("t", "count").deadlines, 1, asked.request)])
        assert send([command("HLEN", slabs)]) == [1]
        assert run(["tick", "--once"]) == 0
        assert send([command("HLEN", slabs)]) == [0]
