"""Connections that are cut, away or behind a socket of the file system."""

import asyncio
import errno
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from acker.errors import StoreMisconfigured, StoreUnavailable
from acker.store import client as stores
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.flight import check_lost
from acker.store.operation import Request, command
from tests.helpers.faults.proxy import proxied
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until
from tests.helpers.servers.threads import Send, in_a_thread

KEY = b"acker:{lead}:turn"


Connect = Callable[[str, float], Send]


@pytest.fixture(params=["store", "twin"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Each of the two clients, for a URL and a time-out in seconds."""
    twins: list[AsyncStore] = []

    def made(url: str, timeout: float) -> Send:
        if request.param == "store":
            return in_a_thread(Store(url, timeout=timeout))
        twins.append(AsyncStore(url, timeout=timeout))
        return twins[-1].send

    yield made
    for twin in twins:
        await twin.aclose()


@pytest.mark.timeout(300)
async def test_a_name_that_leads_to_another_server_after_a_failover_is_followed(
    new_server: NewServer, kind: str, connect: Connect
) -> None:
    old, new = new_server(kind, append_only=False), new_server(kind, append_only=False)
    with proxied(old.url) as proxy:
        send = connect(proxy.url, 60.0)
        await asyncio.gather(*(send([command("SET", KEY, "old")]) for _ in range(4)))
        with redis.Redis.from_url(old.url) as client:
            client.replicaof("127.0.0.1", new.port)
        proxy.lead(new.url)
        # The old connections are whole, and lead to a replica that takes nothing.
        assert [bytes(reply) for reply in await send([command("SET", KEY, "new")])] == [b"OK"]
    with redis.Redis.from_url(new.url) as client:
        assert client.get(KEY) == b"new"


@pytest.mark.timeout(300)
async def test_replies_that_come_one_by_one_do_not_add_up(valkey_url: str, connect: Connect) -> None:
    slow = [Request(KEY, ["BLPOP", KEY, 0.8]) for _ in range(10)]
    with pytest.raises(StoreUnavailable):
        await connect(valkey_url, 2.0)(slow)


@pytest.mark.timeout(300)
async def test_a_server_in_a_script_is_awaited(new_server: NewServer, kind: str, connect: Connect) -> None:
    server = new_server(kind, append_only=False, options={"busy-reply-threshold": "20"})
    with proxied(server.url) as proxy, ThreadPoolExecutor(1) as other:
        known, fresh = connect(proxy.url, 60.0), connect(proxy.url, 61.0)
        assert await known([command("EXISTS", KEY)]) == [0]
        for send, asked in ((known, b"EXISTS"), (fresh, b"INFO")):
            reported = threading.Event()

            def answered(request: bytes, asked: bytes = asked, reported: threading.Event = reported) -> bool:
                if asked in request:
                    reported.set()
                return False

            endless = other.submit(run_endless, server.url)
            await asyncio.to_thread(wait_until, lambda: is_busy(server.url))
            proxy.swallow = answered
            waiting = asyncio.ensure_future(send([command("EXISTS", KEY)]))
            assert await asyncio.to_thread(reported.wait, 60)
            with redis.Redis.from_url(server.url) as client:
                client.script_kill()
            assert await waiting == [0]
            assert "killed" in endless.result(60)


def run_endless(url: str) -> str:
    with redis.Redis.from_url(url, socket_timeout=120) as client:
        try:
            client.eval("while true do end", 0)
        except redis.ResponseError as error:
            return str(error)
    return "it ended"


def is_busy(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return not client.ping()
        except redis.ResponseError as error:
            return str(error).startswith("BUSY")


@pytest.mark.timeout(300)
def test_the_connections_of_stores_that_are_no_more_used_are_forgotten(valkey_url: str) -> None:
    used = []
    for number in range(stores.CLIENTS + 10):
        # As where a password is a token that is made anew every hour.
        store = Store(valkey_url, timeout=10 + number / 100)
        assert store.send([command("EXISTS", KEY)]) == [0]
        used.append(stores._client(store))
    assert len(stores._clients) == stores.CLIENTS
    pools = [pool for one in used for pool in one._pools.values()]
    kept = list(stores._clients.values())  # threads of tests before may have some again
    assert [len(pool._idle) for pool in pools] == [int(one in kept) for one in used]
    assert used[0] not in kept
    assert used[-1] in kept
    late = pools[0].take()  # by a thread that was about to
    pools[0].give(late)
    assert not pools[0]._idle
    assert Store(valkey_url, timeout=10).send([command("EXISTS", KEY)]) == [0]


ASKED = [command("EXISTS", b"key")]


async def test_a_server_without_its_socket_is_waited_for(new_server: NewServer, tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/s"

    def there() -> bool:
        return (tmp_path / "s").exists()

    with pytest.raises(StoreUnavailable, match="unix://"):  # nobody has ever been there
        Store(url, timeout=0.3).send(ASKED)
    server = new_server(options={"unixsocket": f"{tmp_path}/s"})
    async with AsyncStore(url, timeout=60) as twin:
        for send in (in_a_thread(Store(url, timeout=60)), twin.send):
            assert await send(ASKED) == [0]
            for end in (server.stop, server.kill):  # the one takes the socket away, the other leaves it
                await asyncio.to_thread(end)
                assert there() == (end == server.kill)
                asked = asyncio.ensure_future(send(ASKED))
                await asyncio.to_thread(server.start)
                assert await asked == [0]


async def test_a_path_that_leads_to_no_socket_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(f"{tmp_path}/datagrams")
        for wrong in ("file/s", "datagrams"):
            url = f"unix://{tmp_path}/{wrong}"
            with pytest.raises(StoreMisconfigured, match="no connection to unix://"):
                Store(url, timeout=300).send(ASKED)
            async with AsyncStore(url, timeout=300) as twin:
                with pytest.raises(StoreMisconfigured, match="no connection to unix://"):
                    await twin.send(ASKED)


def failed(cause: OSError) -> Exception:
    """An error of the system, as redis-py raises it."""
    try:
        try:
            raise cause
        except OSError as error:
            raise redis.exceptions.ConnectionError(f"Error connecting: {error}")  # noqa: B904 - as it does
    except redis.exceptions.ConnectionError as error:
        return error


@pytest.mark.parametrize(
    ("cause", "unix", "tcp"),
    [
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), False, True),
        (ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), False, False),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), True, True),
        (socket.gaierror(errno.ENOENT, "Name: No such file or directory, Permission denied"), False, False),
        (ssl.SSLEOFError(8, "[SSL: UNEXPECTED_EOF_WHILE_READING] CERTIFICATE"), False, False),
        (ssl.SSLCertVerificationError(1, "self-signed"), True, True),
        (OSError(errno.EHOSTUNREACH, "[SSL] CERTIFICATE, Permission denied"), False, False),
    ],
)
def test_outages_are_told_by_error_and_address(cause: OSError, unix: bool, tcp: bool) -> None:
    for node, lasts in (("/s", 0), unix), (("h", 6379), tcp):
        if lasts:
            with pytest.raises(StoreMisconfigured):
                check_lost(failed(cause), "rediss://h", node)
        else:
            check_lost(failed(cause), "rediss://h", node)


def test_an_error_that_was_handled_when_the_store_was_asked_is_no_cause() -> None:
    try:
        raise FileNotFoundError(errno.ENOENT, "the caller's own")
    except FileNotFoundError as before:
        try:
            raise redis.exceptions.ConnectionError("Connection closed by server.")
        except redis.exceptions.ConnectionError as error:
            check_lost(error, "rediss://h", ("h", 6379), before)
            with pytest.raises(StoreMisconfigured):
                check_lost(error, "rediss://h", ("h", 6379))
