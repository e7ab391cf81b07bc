"""Scripts that hold the store: the server's answers meanwhile, and the name of the client afterwards."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from acker.errors import StoreError, StoreUnavailable
from acker.inspect.slow_scripts import slow_scripts
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store, _client
from acker.store.operation import Operation, command
from tests.helpers.servers.servers import KINDS, Servers, clean_database, wait_until

SPIN = """
local begun = redis.call('TIME')
redis.call('SET', KEYS[1], 1)
repeat
  local now = redis.call('TIME')
until (now[1] - begun[1]) * 1000 + (now[2] - begun[2]) / 1000 > 3000
return redis.call('DEL', KEYS[1])
"""


def spin(url: str) -> None:
    with redis.Redis.from_url(url, client_name="batch-job") as client:
        client.eval(SPIN, 1, "other:key")


@pytest.fixture(params=KINDS)
def server(servers: Servers, request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    with clean_database(servers.url(request.param)) as url, redis.Redis.from_url(url) as client:
        yield url, client


def test_a_script_that_holds_the_store_is_named_with_its_client_when_it_has_ended(
    server: tuple[str, Any],
) -> None:
    url, raw = server
    ledger = open_ledger(Store(url, timeout=0.5), "t", ackers=1)
    assert ledger.run(slow_scripts(ledger.core)) == ()
    [before] = raw.config_get("busy-reply-threshold").values()
    raw.config_set("busy-reply-threshold", 100)
    thread = threading.Thread(target=spin, args=[url])
    thread.start()
    try:
        since = wait_until(lambda: re.search(r"BUSY .*; it has said so since \S+ UTC, and", why_away(ledger)))
        assert since is not None
        again = why_away(ledger)
        assert since[0] in again or not again, "the first time that was seen, and not the last"
    finally:
        thread.join()
        raw.config_set("busy-reply-threshold", before)
    [script] = ledger.run(slow_scripts(ledger.core))
    assert 2.9 < script.seconds < 60
    assert script.name == "batch-job"
    assert script.client.startswith("127.0.0.1:")
    assert script.command.startswith("EVAL \nlocal begun")
    assert "client 127.0.0.1:" in script.text()
    assert "(batch-job) held the store for " in script.text()
    assert not _client(ledger.store).nodes.busy
    raw.slowlog_reset()
    assert ledger.run(slow_scripts(ledger.core)) == ()


def test_a_refused_answer_and_a_lost_connection_show_that_the_store_is_not_busy_any_more(
    url: str, raw: Any
) -> None:
    ledger = open_ledger(Store(url, timeout=0.5), "t", ackers=1)
    nodes = _client(ledger.store).nodes
    [node] = nodes.to_ask()
    raw.set(keys.config("text"), "no hash")
    nodes.busy[node] = (1.0, 1.0)
    with pytest.raises(StoreError, match="was refused"):
        ledger.run(wrong_kind())
    assert not nodes.busy
    nodes.busy[node] = (1.0, 1.0)
    nodes.lost(node)
    assert not nodes.busy
    raw.delete(keys.config("text"))


def wrong_kind() -> Operation[None]:
    yield [command("HGETALL", keys.config("text"))]


def why_away(ledger: Ledger) -> str:
    """The words of the error while the store does not answer; "" while it does."""
    try:
        ledger.counters()
    except StoreUnavailable as error:
        return str(error)
    return ""


def test_a_user_without_the_right_sees_none(url: str, raw: Any) -> None:
    ledger = open_ledger(Store(url), "t", ackers=1)
    raw.execute_command("ACL", "SETUSER", "plain", "on", ">plain-secret", "~*", "+@all", "-slowlog")
    try:
        other = Store(url.replace("redis://", "redis://plain:plain-secret@"))
        assert raw.exists(keys.config("t"))
        assert other.run(slow_scripts(ledger.core)) == ()
    finally:
        raw.execute_command("ACL", "DELUSER", "plain")
