"""The connections of a process to a server: bounded, used again, and clean for each caller."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hiredis
import pytest
import redis

from acker.store import keys
from acker.store.address import parse
from acker.store.client import CONNECTIONS, Store, connecting
from acker.store.connections import Connection, Connections
from acker.store.operation import Reply, Request, Word, command
from tests.helpers.servers.servers import wait_until

MOST = 4


@pytest.fixture
def pool(url: str) -> Iterator[Connections]:
    address = parse(url)
    made = Connections(*connecting(address, address.nodes[0], 10.0), MOST)
    yield made
    made.close()


def packed(words: Any) -> bytes:
    return bytes(hiredis.pack_command(words))


def ask(connection: Connection, *words: str | bytes) -> Reply:
    connection.send([packed(words)])
    [reply] = connection.read(1, lambda: 5.0)
    return reply


def number(connection: Connection) -> int:
    """By what the server knows a connection."""
    return int(ask(connection, "CLIENT", "ID"))


def test_what_is_given_back_is_taken_again(pool: Connections) -> None:
    one = pool.take()
    known = number(one)
    pool.give(one)
    assert number(pool.take()) == known


def test_who_waits_for_what_is_to_come_keeps_nobody_from_asking(pool: Connections) -> None:
    waiting = [pool.take(waits=True) for _ in range(3 * MOST)]
    taken = [pool.take() for _ in range(MOST)]
    assert len({number(connection) for connection in waiting + taken}) == 4 * MOST
    with pytest.raises(redis.exceptions.MaxConnectionsError):
        pool.take()
    for connection in taken + waiting:
        pool.give(connection)
    again = [pool.take(waits=True), *(pool.take() for _ in range(MOST - 1))]
    assert {number(connection) for connection in again} == {
        number(connection) for connection in taken
    }  # the others were closed


def test_a_store_answers_where_more_threads_wait_than_it_has_connections(url: str) -> None:
    store = Store(url, timeout=120.0)
    stream = keys.Stream("t", "nothing").entries
    words: list[Word] = ["XREAD", "BLOCK", 50_000, "STREAMS", stream, "0"]
    with ThreadPoolExecutor(2 * CONNECTIONS) as threads, redis.Redis.from_url(url) as raw:
        waiting = [threads.submit(store.send, [Request(stream, words)]) for _ in range(2 * CONNECTIONS)]
        # A caller of a test before may wait, too: one of these may ask later than the row comes, so they ask
        # from the start of the stream.
        wait_until(lambda: raw.info("clients")["blocked_clients"] >= 2 * CONNECTIONS)
        assert store.send([command("EXISTS", stream)]) == [0]
        assert [one.done() for one in waiting] == [False] * len(waiting)
        raw.xadd(stream, {"n": 1})
    assert all(one.result()[0] for one in waiting)


def test_no_more_are_taken_than_allowed_until_one_comes_back(pool: Connections) -> None:
    taken = [pool.take() for _ in range(MOST)]
    assert len({number(one) for one in taken}) == MOST
    with pytest.raises(redis.exceptions.MaxConnectionsError):
        pool.take()
    pool.give(taken.pop())
    taken.append(pool.take())
    pool.drop(taken.pop())
    assert ask(pool.take(), "PING") == b"PONG"


def test_whoever_forgets_one_does_not_hold_it_for_ever(pool: Connections, raw: "redis.Redis") -> None:
    for _ in range(3):
        for _ in range(MOST):
            pool.take()
        gc.collect()
    assert ask(pool.take(), "PING") == b"PONG"


def test_a_connection_is_closed_when_nobody_has_it_any_more(pool: Connections) -> None:
    gc.disable()
    try:
        one = pool.take()
        socket = one._socket
        del one
        assert socket.fileno() == -1
    finally:
        gc.enable()


def test_one_that_the_server_has_ended_is_not_taken_again(pool: Connections, raw: "redis.Redis") -> None:
    taken = [pool.take() for _ in range(MOST)]
    numbers = [number(connection) for connection in taken]
    for connection in taken:
        pool.give(connection)
    for client in numbers:
        raw.client_kill_filter(_id=str(client))
    for connection in taken:
        wait_until(connection.stirs)
    assert number(pool.take()) not in numbers


def test_one_with_words_that_nobody_has_read_is_not_taken_again(pool: Connections) -> None:
    connection = pool.take()
    known = number(connection)
    connection.send([packed(("ECHO", word)) for word in ("mine", "not yours")])
    assert connection.read(1, lambda: 5.0) == [b"mine"]
    wait_until(connection.stirs)  # the server may take its time for the other one
    pool.give(connection)
    other = pool.take()
    assert ask(other, "ECHO", "yours") == b"yours"
    assert number(other) != known


def test_an_error_is_a_reply_and_the_next_one_is_read_after_it(pool: Connections) -> None:
    one = pool.take()
    one.send([packed(("NONSENSE",)), packed(("PING",))])
    refused, pong = one.read(2, lambda: 5.0)
    assert isinstance(refused, redis.ResponseError)
    assert pong == b"PONG"


def test_who_was_waited_for_shortly_is_waited_for_as_long_as_ever_the_next_time(pool: Connections) -> None:
    connection = pool.take()
    assert ask(connection, "PING") == b"PONG"
    connection.send([packed(("PING",))])
    assert connection.read(1, lambda: 0.01) == [b"PONG"]
    connection.send([packed(("BLPOP", "acker:{none}:list", "0.2"))])
    assert connection.read(1, lambda: 5.0) == [None]
    connection.send([packed(("BLPOP", "acker:{none}:list", "5"))])
    with pytest.raises(redis.exceptions.TimeoutError):
        connection.read(1, lambda: 0.05)
    pool.drop(connection)


def test_threads_that_end_leave_no_connections_behind(url: str, raw: "redis.Redis") -> None:
    store = Store(url, timeout=11.0)
    before = {client["id"] for client in raw.client_list()}
    for _ in range(3 * CONNECTIONS):
        asking = threading.Thread(target=store.send, args=([Request(b"", ["PING"])],))
        asking.start()
        asking.join()
    assert len({client["id"] for client in raw.client_list()} - before) == 1


def test_more_threads_than_connections_all_get_their_replies(url: str, raw: "redis.Redis") -> None:
    store = Store(url, timeout=60.0)
    before = {client["id"] for client in raw.client_list()}
    with ThreadPoolExecutor(2 * CONNECTIONS) as threads:
        found = list(threads.map(lambda n: store.send([command("ECHO", b"%d" % n)]), range(1_000)))
    assert found == [[b"%d" % n] for n in range(1_000)]
    assert len({client["id"] for client in raw.client_list()} - before) <= CONNECTIONS
