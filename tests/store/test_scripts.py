"""The Lua scripts: each says what it is given, and every server loads it as it is hashed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from acker.errors import StoreError
from acker.ledger.settings.config import TopologyConfig
from acker.store import keys, scripts
from acker.store.client import Store
from acker.store.operation import Reply, Request, chain, command
from acker.streams.commits import scripts as commit_scripts
from acker.streams.staging import scripts as staging_scripts
from acker.streams.staging.external import scripts as external_scripts
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

ALL = sorted(scripts.load_all())


@pytest.mark.parametrize("name", ALL)
def test_the_server_loads_each_script_under_our_hash(raw: "redis.Redis", name: str) -> None:
    script = scripts.get(name)
    assert raw.script_load(script.text) == script.sha.decode()


@pytest.mark.parametrize("name", ALL)
def test_each_script_declares_its_keys_and_arguments_in_its_header(name: str) -> None:
    header = re.match(r"(?:#!lua.*\n)?((?:--.*\n)+)", scripts.get(name).text)
    assert header is not None
    assert "-- KEYS " in header[1]
    assert "-- ARGV " in header[1]
    assert "-- Returns" in header[1]


def test_the_scripts_can_be_written_out_as_the_server_gets_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "acker.store.scripts", "--expand", tmp_path], check=True)
    assert {path.stem: path.read_text() for path in tmp_path.iterdir()} == {
        name: script.text for name, script in scripts.load_all().items()
    }
    assert not any("@include" in path.read_text() for path in tmp_path.iterdir())


CONFIG = TopologyConfig("t")
COMMITS = keys.commits("t", "writer").decode()


def begin(number: int, what: str, attempt: str = "a") -> Request:
    return commit_scripts.begin_commit(CONFIG, "writer", number, what, 60, attempt, 1)


def advance(number: int, start: str, to: str) -> Request:
    return commit_scripts.advance_commit(CONFIG, "writer", number, start, to)


ONE, TWO = keys.Shard("t", 0, 2).staged("a" * 32, 0), keys.Shard("t", 1, 2).staged("b" * 32, 0)


def staging(key: bytes) -> Request:
    return staging_scripts.stage(key, 60, {"field": key.decode()})


def sent(url: str, *members: Request) -> Reply:
    [replies] = Store(url).send([chain(members)])
    return replies


def test_each_script_gets_its_own_keys_and_arguments(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    """Of keys in several slots, and at first of scripts that the server does not have."""
    asked = begin(0, "x"), staging(ONE), staging(TWO), advance(0, "prepared a", "tracked")
    assert sent(valkey_url, *asked) == [[b"prepared a", b"x"], 1, 1, 1]
    assert [valkey_raw.hget(name, "field") for name in (ONE, TWO)] == [ONE, TWO]
    assert valkey_raw.hget(COMMITS, "0:state") == b"tracked"


@pytest.mark.parametrize(
    ("members", "replies"),
    [
        ([begin(0, "y", "b"), staging(ONE)], [[b"prepared a", b"x"]]),
        ([advance(0, "committed", "tracked"), staging(ONE)], [0]),
        ([staging_scripts.extend_staged([b"{gone}"], 9), staging(ONE)], [0]),
        ([commit_scripts.check_delivered(b"{delivered}", "1-0", "2-0", "0" * 16), staging(ONE)], [0]),
        ([external_scripts.check_epochs([keys.Stream("t", "gone")], ["1"]), staging(ONE)], [0]),
        ([begin(-1, "y"), staging(ONE)], [b"!ACKER commit -1 comes after commit 0 of the same writer"]),
    ],
)
def test_nothing_is_run_after_a_script_that_has_not_done_its_part(
    valkey_url: str, valkey_raw: "redis.Redis", members: list[Request], replies: list[Reply]
) -> None:
    sent(valkey_url, begin(0, "x"))
    assert sent(valkey_url, staging(TWO), *members) == [1, *replies]
    assert not valkey_raw.exists(ONE)


def test_an_error_of_the_server_ends_a_chain(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    valkey_raw.set(COMMITS, "text")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        sent(valkey_url, staging(ONE), begin(0, "x"), staging(TWO))
    assert (valkey_raw.exists(ONE), valkey_raw.exists(TWO)) == (1, 0)
    valkey_raw.delete(COMMITS)


def test_a_cluster_is_sent_no_chain_but_what_is_asked_beside_it(new_server: NewServer) -> None:
    server = new_server(append_only=False, options={"cluster-enabled": "yes"})
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: client.cluster("info")["cluster_state"] == "ok")
        store = Store(server.url, cluster=True)
        asked = [chain([begin(0, "x")]), command("SET", ONE, "1"), chain([staging(TWO)])]
        assert store.send(asked) == [None, b"OK", None]
        assert store.send([chain([staging(TWO)])]) == [None]
        assert client.keys() == [ONE]
