"""A server that does not let a client in says so at once, and the password stays out of the message."""

from collections.abc import Iterator

import pytest
import redis

from acker.aio import AsyncStore
from acker.errors import StoreMisconfigured
from acker.requests import command
from acker.store import Store
from tests.conftest import NewServer

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
def test_a_refused_client_is_told_so_and_does_not_wait_for_the_timeout(address: str, user: str) -> None:
    with pytest.raises(StoreMisconfigured, match="refuses this client") as refused:
        Store(f"redis://{user}{address}", timeout=300).send(ASKED)
    assert "@" not in str(refused.value)


async def test_the_asyncio_twin_says_the_same(address: str) -> None:
    with pytest.raises(StoreMisconfigured, match="refuses this client"):
        await AsyncStore(f"redis://:wrong@{address}", timeout=300).send(ASKED)


def test_the_right_password_opens(address: str) -> None:
    assert Store(f"redis://:sesame@{address}").send(ASKED) == [0]
