"""Connections to the store: pools per process and URL, made when first needed.

A `Store` holds settings only, so it pickles to executors, and works in any thread and after a fork. It runs
operations (`acker.store.operation`), and may resend their requests until its time-out.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from acker.errors import AckerError, ValidationError
from acker.store.address import Address, Node, parse, shown
from acker.store.connections import Connection, Connections
from acker.store.flight import (
    ASK_LIMIT,
    LEAST_VALUE_BYTES,
    LOST,
    REFUSED,
    Flight,
    NodeBatch,
    answered,
    check_server,
    demoted,
    no_answer,
    patience,
    pauses,
    refusal,
    unidentified,
    value_limit,
)
from acker.store.loops import Heartbeats
from acker.store.nodes import Nodes
from acker.store.operation import Operation, Reply, Request, flights

T = TypeVar("T")

TIMEOUTS = (0.1, 300.0)
"""The shortest and the longest time-out of a flight of requests, in seconds."""
CONNECTIONS = 64
"""Most connections of one process to one node, without connections of blocking reads."""
_ROUND_TRIPS = 8
CLIENTS = 64
"""Most stores (addresses, users and time-outs) whose connections a process keeps."""


def options(timeout: float) -> dict[str, Any]:
    """Settings of every connection: resending is the store's own, so redis-py's is off."""
    return {
        "socket_timeout": patience(timeout),
        "socket_connect_timeout": patience(timeout),
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        # Naming the library would take two round trips, and a right that restricted users lack.
        "driver_info": None,
    }


def connecting(
    address: Address, node: Node, timeout: float, asking: bool = False
) -> tuple[type[Any], dict[str, Any]]:
    """The class of a connection to a node, and its arguments.

    asking: True if the connection only asks for the places of keys; the node may be a Sentinel.
    """
    sentinel = asking and address.kind == "sentinel"
    settings = {**options(timeout), **(address.sentinel_settings if sentinel else address.settings)}
    if not node[1]:
        return redis.UnixDomainSocketConnection, {**settings, "path": node[0]}
    kind = redis.SSLConnection if address.tls else redis.Connection
    return kind, {**settings, "host": node[0], "port": node[1]}


class Store:
    """Runs operations on the store at `url` (`acker.store.address` lists the kinds of URLs).

    Args:
        url: URL of the store.
        timeout: Seconds until StoreUnavailable, for each flight of requests, resends included (0.1 to 300).
            Hanging nodes, however many, can make it twice as long.
        cluster: True if a plain URL names a node of a Redis Cluster, as `+cluster` does.

    Raises:
        StoreUnavailable: The store did not answer in time.
        StoreMisconfigured: The store cannot keep acker's promises.
        StoreError: The store refused a command.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, cluster: bool = False) -> None:
        self.address = parse(url, cluster)
        self.url = url
        shortest, longest = TIMEOUTS
        if not shortest <= timeout <= longest:
            raise ValidationError(f"timeout: expected {shortest:g} to {longest:g} seconds, got {timeout!r}")
        self.timeout = timeout

    @property
    def cluster(self) -> bool:
        """True if the store is a Redis Cluster."""
        return self.address.kind == "cluster"

    @property
    def round_trip(self) -> float:
        """Seconds of a round trip to the store: the least of the last 8 flights; 0 before the first."""
        return min(_client(self).round_trips, default=0.0)

    def __repr__(self) -> str:
        return f"Store({shown(self.url)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.url, self.timeout, self.cluster))

    def run(self, operation: Operation[T]) -> T:
        """Runs an operation to its end and returns its result."""
        beats = Heartbeats(self.send)
        try:
            requests = next(operation)
            while True:
                beats.note(requests)
                try:
                    replies: list[Reply] = []
                    for flight in flights(requests):
                        replies += self.send(flight)
                except AckerError as error:
                    requests = operation.throw(error)
                else:
                    requests = operation.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            beats.end()

    def send(self, requests: Sequence[Request]) -> list[Reply]:
        """Sends a flight, again and again until each request has its reply or the time is over."""
        thread = threading.get_ident()
        _waiting[thread] = time.monotonic()
        try:
            return self._send(requests)
        finally:
            _waiting.pop(thread, None)

    def _send(self, requests: Sequence[Request]) -> list[Reply]:
        flight, client = Flight(requests, self.url, self.timeout), _client(self)
        waits: Iterator[float] | None = None
        while True:
            try:
                if client.nodes.stale:
                    client.find_nodes(flight)
                client.exchange(flight)
            except REFUSED as error:
                raise refusal(self.url, error) from error
            if not flight.missing:
                break
            flight.check_time()
            waits = waits or pauses()
            pause = next(waits)
            if flight.cause is not None:
                time.sleep(pause)
            flight.begin()
        if flight.round_trip is not None:
            client.round_trips.append(flight.round_trip)
        return flight.replies


class _Client:
    """The connections of one process to the servers of one address."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.nodes = Nodes(store.address)
        self.round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self._pools: dict[Node, Connections] = {}
        self._limit = 0

    def find_nodes(self, flight: Flight) -> None:
        """Asks for the places of the keys, which are in doubt. Without an answer the known places hold."""
        nodes = self.nodes
        for node in nodes.to_ask():
            try:
                if nodes.learn(node, self._ask(node)):
                    for gone in nodes.gone(list(self._pools)):
                        pool = self._pools.pop(gone, None)  # another thread may be asking too
                        if pool is not None:
                            pool.close()
                    return
            except LOST as error:
                flight.lost(node, error, nodes)
            if flight.late:
                return

    def _ask(self, node: Node) -> Reply:
        """A node's answer to the question for the places of keys, on a separate connection."""
        kind, settings = connecting(self._store.address, node, self._store.timeout, asking=True)
        connection = kind(**settings)
        try:
            connection.connect()
            connection.send_command(*self.nodes.question)
            return connection.read_response()
        except REFUSED:
            raise
        except redis.ResponseError as error:
            raise answered(error, no_answer(self._store.url, error)) from error
        finally:
            connection.disconnect()

    def close(self) -> None:
        """Closes the idle connections at once, and each busy connection after its use."""
        for pool in list(self._pools.values()):
            pool.close()

    def exchange(self, flight: Flight) -> None:
        """Sends all nodes their requests, and then takes their replies."""
        sent: list[_Sent] = []
        try:
            for batch in flight.node_batches(self.nodes):
                pieces, expected = flight.pack(batch)
                node = batch.node
                try:
                    pool = self._pools.get(node) or self._pool(node)
                    sent.append(_Sent(batch, expected, pool, pool.take(batch.blocks)))
                    batch.sent_at = time.monotonic()
                    if sum(map(len, pieces)) > LEAST_VALUE_BYTES < flight.longest:
                        flight.check_size(self._value_limit(pool))
                    sent[-1].connection.send(pieces)
                except LOST as error:
                    why: Exception = error
                    if sent and sent[-1].batch is batch:
                        why = sent[-1].connection.end(expected, error)
                        sent.pop().drop()
                    flight.lost(node, why, self.nodes)
                    if flight.late:
                        break
            while sent:
                oldest = sent[0]
                try:
                    replies = oldest.connection.read(oldest.expected, flight.patience)
                except LOST as error:
                    sent.pop(0).drop()
                    flight.lost(oldest.batch.node, error, self.nodes)
                else:
                    sent.pop(0)
                    if demoted(replies):
                        oldest.drop()
                    else:
                        oldest.pool.give(oldest.connection)
                    flight.take(oldest.batch, replies, self.nodes)
        finally:
            for unread in sent:
                unread.drop()  # nobody reads the rest of its replies

    def _pool(self, node: Node) -> Connections:
        store = self._store
        new_pool = Connections(*connecting(store.address, node, store.timeout), CONNECTIONS)
        # Outside of any lock: if the server is silent, a thread must not wait for the time-out of another
        # thread.
        try:
            check_server(self._facts(new_pool), store.url, store.cluster)
        except BaseException:
            new_pool.close()
            raise
        pool = self._pools.setdefault(node, new_pool)
        if pool is not new_pool:
            new_pool.close()
        return pool

    def _value_limit(self, pool: Connections) -> int:
        """Most bytes of one value: from the URL, or from one of the servers."""
        if not self._limit:
            self._limit = self._store.address.max_value_bytes or value_limit(self._asked(pool, ASK_LIMIT))
        return self._limit

    def _asked(self, pool: Connections, words: tuple[Any, ...]) -> Reply:
        connection, usual = pool.take(), patience(self._store.timeout)
        try:
            connection.send([hiredis.pack_command(words)])
            [reply] = connection.read(1, lambda: usual)
        except BaseException:
            pool.drop(connection)
            raise
        pool.give(connection)
        return reply

    def _facts(self, pool: Connections) -> dict[str, str]:
        """A server's INFO."""
        reply = self._asked(pool, ("INFO",))
        if isinstance(reply, REFUSED):
            raise reply
        if isinstance(reply, redis.ResponseError):
            raise answered(reply, unidentified(self._store.url, reply)) from reply
        lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
        return {name: value for name, colon, value in lines if colon}


class _Sent(NamedTuple):
    """A batch with outstanding replies."""

    batch: NodeBatch
    expected: int
    pool: Connections
    connection: Connection

    def drop(self) -> None:
        self.pool.drop(self.connection)


_clients: dict[tuple[int, str, bool, float], _Client] = {}
_waiting: dict[int, float] = {}
"""Threads that wait for a store, and the start of each wait by the monotonic clock."""


def waiting_since(thread: threading.Thread) -> float | None:
    """The start of a thread's wait for a store, by the monotonic clock; None where it does not wait."""
    return _waiting.get(thread.ident or 0)


def _client(store: Store) -> _Client:
    """Returns the process's client for the store. The oldest is forgotten: a password may change often."""
    name = (os.getpid(), store.url, store.cluster, store.timeout)
    client = _clients.get(name)
    if client is None:
        client = _clients.setdefault(name, _Client(store))
        for oldest in list(_clients)[:-CLIENTS]:
            forgotten = _clients.pop(oldest, None)
            if forgotten is not None:
                forgotten.close()
    return client


def _forget_clients() -> None:
    """Forgets the parent's connections in a forked child."""
    _clients.clear()


os.register_at_fork(after_in_child=_forget_clients)
