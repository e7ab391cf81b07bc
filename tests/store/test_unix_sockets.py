"""A store at a socket of the file system: while its server is away it is waited for, as over TCP."""

import asyncio
import errno
import os
import socket
import ssl
from pathlib import Path

import pytest
import redis

from acker.errors import StoreMisconfigured, StoreUnavailable
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.flight import check_lost
from acker.store.operation import command
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.threads import in_a_thread

ASKED = [command("EXISTS", b"key")]


async def test_a_server_that_is_away_is_waited_for_whether_its_socket_is_there_or_not(
    new_server: NewServer, tmp_path: Path
) -> None:
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
    """As redis-py raises what the system says."""
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
def test_what_passes_is_told_by_the_error_and_the_address_and_not_by_words(
    cause: OSError, unix: bool, tcp: bool
) -> None:
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
