"""A server that does not let a client in says so at once, and the password stays out of the message."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from acker import Topology, cli
from acker.demo.options import Options as DemoOptions
from acker.errors import MissingRights, StoreMisconfigured
from acker.spark.options.options import Options
from acker.store.address import parse
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import command
from api.settings.settings import settings
from tests.helpers.servers.new_server import NewServer

ASKED = [command("EXISTS", b"anything")]


@pytest.fixture
def address(new_server: NewServer) -> Iterator[str]:
    """Host, port and database of a server that wants a password, and knows a user who may do too little."""
    server = new_server(append_only=False)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">reader", "~*", "+get", "+hello")
        client.config_set("requirepass", "sesame")
        yield server.url.removeprefix("redis://")
        client.execute_command("AUTH", "sesame")
        client.config_set("requirepass", "")


@pytest.mark.parametrize("user", ["", ":wrong@", "reader:reader@"])
def test_a_refused_client_is_reported_so_and_does_not_wait_for_the_timeout(address: str, user: str) -> None:
    with pytest.raises((StoreMisconfigured, MissingRights), match="refuses this client") as refused:
        Store(f"redis://{user}{address}", timeout=300).send(ASKED)
    assert "@" not in str(refused.value)


async def test_the_asyncio_twin_says_the_same(address: str) -> None:
    with pytest.raises(StoreMisconfigured, match="refuses this client"):
        await AsyncStore(f"redis://:wrong@{address}", timeout=300).send(ASKED)


def test_the_right_password_opens(address: str) -> None:
    assert Store(f"redis://:sesame@{address}").send(ASKED) == [0]


def test_what_is_shown_of_options_and_clients_has_no_password(address: str) -> None:
    url = f"redis://:sesame@{address}"
    options = Options.parse({"url": url, "topology": "t", "stream": "s", "ackers": "1"})
    demo = DemoOptions(url=url)
    with Topology(url, "t", ackers=1) as topology:
        shown = [options, demo, topology, topology.spout("s"), topology.ledger.store, topology.ledger.core]
        shown += [parse(url), AsyncStore(url), settings(url=url), topology.tree, options.ledger]
        shown += topology.spout("s").emit("m")
    assert [repr(one) for one in shown if "sesame" in repr(one)] == []


WRONG = ["redis://:{}@{}", "redis://u:{}@{}", "redis://:{}/x@{}", "u:{}@{}"]


@pytest.mark.parametrize("given", WRONG)
def test_no_command_tells_a_password_with_which_it_was_refused(
    given: str, address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = given.format("hunter2", address)
    monkeypatch.setenv("ACKER_URL", url)
    for words in (["topologies", "--url", url], ["topologies"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code
    printed = capfd.readouterr()
    assert printed.err.count("acker: ") == 2
    assert "hunter2" not in printed.out + printed.err


@pytest.mark.parametrize("given", WRONG[1:3])
def test_neither_does_a_service_that_cannot_start(given: str, address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from acker.cli import main; main()", "serve", "--port", "0"],
        env={**os.environ, "ACKER_URL": given.format("hunter2", address), "ACKER_LOG_LEVEL": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert done.stderr
    assert "hunter2" not in done.stdout + done.stderr
