"""Addresses of stores, and the credentials in them."""

import os
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest
import redis

from acker import Topology, cli
from acker.cli.demo.options import Options as DemoOptions
from acker.errors import MissingRights, StoreMisconfigured, ValidationError
from acker.spark.options.options import Options
from acker.store.address import Address, parse, shown
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.nodes import Nodes
from acker.store.operation import command
from api.settings.settings import settings
from tests.helpers.servers.new_server import NewServer

NOBODY = {"username": None, "password": None}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address("server", (("localhost", 6379),), False, {**NOBODY, "db": 0}, NOBODY)),
        ("redis://h:1/3", Address("server", (("h", 1),), False, {**NOBODY, "db": 3}, NOBODY)),
        ("redis://[::1]:7", Address("server", (("::1", 7),), False, {**NOBODY, "db": 0}, NOBODY)),
        (
            "redis://u:p%40%3A%2F@h",
            Address("server", (("h", 6379),), False, {"username": "u", "password": "p@:/", "db": 0}, NOBODY),
        ),
        (
            "rediss://:p@h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false&ssl_cert_reqs=none",
            Address(
                "server",
                (("h", 6379),),
                True,
                {
                    "username": None,
                    "password": "p",
                    "db": 0,
                    "ssl_ca_certs": "/ca.pem",
                    "ssl_check_hostname": False,
                    "ssl_cert_reqs": "none",
                },
                {
                    **NOBODY,
                    "ssl_ca_certs": "/ca.pem",
                    "ssl_check_hostname": False,
                    "ssl_cert_reqs": "none",
                },
            ),
        ),
        (
            "redis+cluster://a:1,b,[::1]:2",
            Address("cluster", (("a", 1), ("b", 6379), ("::1", 2)), False, {**NOBODY, "db": 0}, NOBODY),
        ),
        (
            "redis+sentinel://u:p@a,b:5/orders/2?sentinel_username=s&sentinel_password=t",
            Address(
                "sentinel",
                (("a", 26379), ("b", 5)),
                False,
                {"username": "u", "password": "p", "db": 2},
                {"username": "s", "password": "t"},
                "orders",
            ),
        ),
        (
            "unix:///tmp/a%20socket?db=4",
            Address("server", (("/tmp/a socket", 0),), False, {**NOBODY, "db": 4}, {}),
        ),
    ],
)
def test_what_a_url_says(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h", "expected redis://"),
        ("redis+other://h", "expected redis://"),
        ("xredis://h", "expected redis://"),
        ("redis://a,b", "expected one host"),
        ("redis://h/x", "number of a database"),
        ("redis://h/1/2", "number of a database"),
        ("redis://h:port", "a port"),
        ("redis://h:70000", "a port"),
        ("redis+cluster://h/1", "database 0 only"),
        ("redis+cluster://" + "h," * 100 + "h", "at most 100"),
        ("redis+sentinel://h", "SERVICE"),
        ("redis+sentinel://h/s/x", "number of a database"),
        ("redis://h?ssl_ca_certs=x", "option 'ssl_ca_certs': expected one of max_value_bytes"),
        ("rediss://h?ssl_cert_reqs=maybe", "option 'ssl_cert_reqs': expected required"),
        ("rediss://h?ssl_check_hostname=1", "option 'ssl_check_hostname': expected true or false"),
        ("redis://h?socket_timeout=1", "option 'socket_timeout': expected one of max_value_bytes"),
        ("redis+sentinel://h/s?password=x", "option 'password': expected one of sentinel_username"),
        ("unix://h", "path of a socket"),
        ("unix:///" + "s" * 107, "at most 107 bytes"),
        ("unix:///s%00", "no NUL"),
        ("redis://h:0", "a port"),
    ],
)
def test_what_is_no_url_of_a_store_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:secret@h:1/0",
        "redis+cluster://u:secret@a,b",
        "redis+sentinel://:secret@a,b/s?sentinel_password=secret",
        "rediss://h?ssl_password=secret",
    ],
)
def test_no_message_tells_a_password(url: str) -> None:
    assert "secret" not in shown(url)
    assert "secret" not in repr(Store(url))
    for bad in (url + "&more=1" if "?" in url else url + "?more=1", "x" + url):
        with pytest.raises(ValidationError) as refused:
            parse(bad)
        assert "secret" not in str(refused.value)


def test_the_option_and_the_scheme_of_a_cluster_say_the_same() -> None:
    assert Store("redis://h:1", cluster=True).address == Store("redis+cluster://h:1").address
    assert pickle.loads(pickle.dumps(Store("redis+cluster://h:1,g:2"))).cluster
    with pytest.raises(ValidationError):
        Store("unix:///s", cluster=True)


def test_who_failed_last_is_asked_last() -> None:
    nodes = Nodes(parse("redis+cluster://a,b,c"))
    nodes.lost(("a", 6379))
    nodes.lost(("c", 6379))
    assert [host for host, _ in nodes.to_ask()] == ["b", "a", "c"]


def test_who_reported_what_does_not_hold_is_asked_last() -> None:
    nodes = Nodes(parse("redis+cluster://a,b,c"))
    places = [[0, 16383, [b"gone", 7001, b"id"], [b"a", 6379, b"id"]]]
    assert nodes.learn(("a", 6379), places)
    nodes.lost(("gone", 7001))
    asked = [host for host, _ in nodes.to_ask()]
    assert set(asked[:2]) == {"b", "c"}
    assert asked[-1] == "gone"
    assert nodes.learn(("b", 6379), places)
    nodes.doubt()
    nodes.doubt()
    assert [host for host, _ in nodes.to_ask()] == ["c", "a", "gone", "b"]


def test_a_node_that_says_no_host_of_its_own_is_the_one_that_was_asked() -> None:
    nodes = Nodes(parse("redis+cluster://seed:7000"))
    assert nodes.owner(b"key") is None
    assert not nodes.learn(("seed", 7000), [])
    assert nodes.learn(("seed", 7000), [[0, 9999, [b"", 7001, b"id"]], [10000, 16383, [b"b", 7002, b"id"]]])
    assert not nodes.stale
    assert nodes.owner(b"foo") == ("b", 7002)  # slot 12182
    assert nodes.owner(b"bar") == ("seed", 7001)  # slot 5061
    assert nodes.gone([("seed", 7001), ("old", 1)]) == [("old", 1)]


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel", "rediss"])
@pytest.mark.parametrize("between", ["/", "?", "#", "/?", "://", "?#", "[", "]"])
@pytest.mark.parametrize(
    "user", [":sec{}ret", "u:@sec{}ret", "sec{}ret:x", ":12{}ret", "sec{}ret", ":x{}a=sec&ret=b"]
)
def test_no_message_tells_a_part_of_a_raw_password(scheme: str, between: str, user: str) -> None:
    url = f"{scheme}://{user.format(between)}@h/0"
    assert not {"sec", "ret"} & set(re.split(r"\W+", shown(url)))
    try:
        address = parse(url)
    except ValidationError as refused:
        reported = "".join(traceback.format_exception(refused))
        assert not {"sec", "ret"} & set(re.split(r"\W+", reported))
    else:
        assert address.nodes[0][0] == "h"
        assert not {"sec", "ret"} & set(re.split(r"\W+", repr(address)))


@pytest.mark.parametrize("url", ["u:secret@h", "secret@h:1", "redis:/:secret@h", "redis//u:secret@h/0"])
def test_no_message_tells_a_password_of_what_is_no_url(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        parse(url)
    assert "secret" not in str(refused.value)


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
