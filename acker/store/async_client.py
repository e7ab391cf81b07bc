"""Connections to the store from an event loop: the asyncio twin of the client."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import hiredis
import redis
import redis.asyncio.connection as connections
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from acker.errors import AckerError
from acker.store.address import Node
from acker.store.client import CONNECTIONS, Store, connecting
from acker.store.connections import ProtocolFault, last_words
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
    longest,
    no_answer,
    pauses,
    refusal,
    unidentified,
    value_limit,
)
from acker.store.loops import AsyncHeartbeats
from acker.store.nodes import Nodes
from acker.store.operation import Operation, Reply, Request, flights

T = TypeVar("T")

_LAST_WORDS = 0.5
"""Seconds to wait for a server's last reply on a closed connection."""


class AsyncStore:
    """Runs operations on the store at `url`, with one pool of connections for each event loop.

    Takes the arguments of `acker.store.client.Store`, raises its errors and resends like it. It pickles, and
    works in any thread that runs an event loop. `aclose`, or leaving it as a context manager, closes the
    connections of the running loop.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, cluster: bool = False) -> None:
        self._settings = Store(url, timeout=timeout, cluster=cluster)
        self._start()

    def _start(self) -> None:
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Async{self._settings!r}"

    def __getstate__(self) -> Store:
        return self._settings

    def __setstate__(self, settings: Store) -> None:
        self._settings = settings
        self._start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def url(self) -> str:
        """The URL as it was given, its password included."""
        return self._settings.url

    @property
    def timeout(self) -> float:
        """Seconds until StoreUnavailable."""
        return self._settings.timeout

    @property
    def cluster(self) -> bool:
        """True if the store is a Redis Cluster."""
        return self._settings.cluster

    def _client(self) -> "_Client":
        """The running loop's client for the store's address."""
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = _Client(self._settings)
        return client

    async def aclose(self) -> None:
        """Closes the running loop's connections; the next call opens new ones."""
        with self._lock:
            own = self._clients.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.close()

    async def run(self, operation: Operation[T]) -> T:
        """Runs an operation to its end and returns its result."""
        beats = AsyncHeartbeats(self.send)
        try:
            requests = next(operation)
            while True:
                beats.note(requests)
                try:
                    replies = [reply for flight in flights(requests) for reply in await self.send(flight)]
                except AckerError as error:
                    requests = operation.throw(error)
                else:
                    requests = operation.send(replies)
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            beats.end()

    async def send(self, requests: Sequence[Request]) -> list[Reply]:
        """Sends a flight, again and again until each request has its reply or the time is over."""
        flight, client, cancels = Flight(requests, self.url, self.timeout), self._client(), _cancels()
        for pause in pauses():
            flight.begin()
            try:
                await client.find_nodes(flight)
                await client.exchange(flight)
            except REFUSED as error:
                raise refusal(self.url, error) from error
            if _cancels() > cancels:
                raise asyncio.CancelledError  # an error of a connection took its place, or redis-py lost it
            if not flight.missing:
                break
            flight.check_time()
            if flight.cause is not None:
                await asyncio.sleep(pause)
        return flight.replies


class _Client:
    """The connections of one event loop to the servers of one address: its client on the loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.nodes = Nodes(store.address)
        self._pools: dict[Node, BlockingConnectionPool] = {}
        self._limit = 0

    async def find_nodes(self, flight: Flight) -> None:
        """Asks for the places of the keys, if they are in doubt. Without an answer the known places hold."""
        nodes = self.nodes
        if not nodes.stale:
            return
        for node in nodes.to_ask():
            try:
                if nodes.learn(node, await self._ask(node)):
                    for gone in nodes.gone(list(self._pools)):
                        await self._pools.pop(gone).disconnect(inuse_connections=False)
                    return
            except LOST as error:
                flight.lost(node, error, nodes)
            if flight.late:
                return

    async def _ask(self, node: Node) -> Reply:
        kind, settings = _connecting(self._store, node, asking=True)
        connection: Any = kind(**settings)
        try:
            await connection.connect()
            await connection.send_command(*self.nodes.question)
            return await connection.read_response()
        except REFUSED:
            raise
        except redis.ResponseError as error:
            raise answered(error, no_answer(self._store.url, error)) from error
        finally:
            await connection.disconnect(nowait=True)

    async def exchange(self, flight: Flight) -> None:
        """Sends all nodes their requests, side by side, and takes their replies."""
        node_batches = flight.node_batches(self.nodes)
        if len(node_batches) == 1:
            await self._exchange(flight, node_batches[0])
            return
        exchanges = (self._exchange(flight, batch) for batch in node_batches)
        for ended in await asyncio.gather(*exchanges, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _exchange(self, flight: Flight, batch: NodeBatch) -> None:
        commands, expected = flight.pack(batch)
        try:
            async with asyncio.timeout(flight.left):
                if sum(map(len, commands)) > LEAST_VALUE_BYTES < flight.longest:
                    flight.check_size(await self._value_limit(batch.node))
                replies = await self._replies(batch.node, commands, expected)
        except LOST as error:
            size = max(longest(flight.requests[number]) for number in batch.numbers)
            why = error if size <= LEAST_VALUE_BYTES else await self._asked_why(batch.node, size, error)
            flight.lost(batch.node, why, self.nodes)
        else:
            flight.take(batch, replies, self.nodes)

    async def _asked_why(self, node: Node, size: int, error: Exception) -> Exception:
        """The server's reply to the announcement of a value of that size; `error` where it sends none.

        An event loop has lost the server's last reply together with the connection.
        """
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._replies(node, [b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size], 1)
        except ProtocolFault as said:
            return said
        except (redis.exceptions.RedisError, OSError):
            pass
        return error

    async def _replies(self, node: Node, commands: list[bytes], expected: int) -> list[Reply]:
        pool = await self._pool(node)
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command(commands)
            replies = [await _reply(connection) for _ in range(expected)]
            if demoted(replies):
                await connection.disconnect(nowait=True)
        except BaseException:
            # Also on cancellation: nobody reads the rest of the replies.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)
        return replies

    async def _value_limit(self, node: Node) -> int:
        """Most bytes of one value: from the URL, or from one of the servers."""
        if not self._limit:
            packed = hiredis.pack_command(ASK_LIMIT)
            asked = self._store.address.max_value_bytes or value_limit(
                *await self._replies(node, [packed], 1)
            )
            self._limit = asked
        return self._limit

    async def _pool(self, node: Node) -> Any:
        pool = self._pools.get(node)
        if pool is None:
            kind, settings = _connecting(self._store, node)
            new_pool = BlockingConnectionPool(
                connection_class=kind,
                max_connections=CONNECTIONS,
                **{**settings, "timeout": self._store.timeout},
            )
            # Without a lock: if the server is silent, a task must not wait for the time-out of another task.
            try:
                facts: Any = await _info(new_pool, self._store.url)
                check_server(facts, self._store.url, self._store.cluster)
            except BaseException:
                await new_pool.disconnect()
                raise
            pool = self._pools.setdefault(node, new_pool)
            if pool is not new_pool:
                await new_pool.disconnect()
        return pool

    async def close(self) -> None:
        """Closes all connections."""
        while self._pools:
            await self._pools.popitem()[1].disconnect()


def _cancels() -> int:
    """The number of cancellations of the running task."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


class _Cancellable(connections.AbstractConnection):
    """A connection on which no cancellation is lost, also while it connects.

    redis-py sends by `asyncio.wait_for`. Before Python 3.12 that returns its result although the task was
    cancelled, where both come in one turn of the loop. The task would then wait for the reply of a server
    that may be silent.
    """

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        cancels = _cancels()
        await super().send_packed_command(command, check_health)
        if _cancels() > cancels:
            await self.disconnect(nowait=True)  # nobody reads the reply
            raise asyncio.CancelledError


class _Connection(_Cancellable, connections.Connection):
    pass


class _SSLConnection(_Cancellable, connections.SSLConnection):
    pass


class _UnixDomainSocketConnection(_Cancellable, connections.UnixDomainSocketConnection):
    pass


_KINDS: dict[type[Any], type[Any]] = {
    redis.Connection: _Connection,
    redis.SSLConnection: _SSLConnection,
    redis.UnixDomainSocketConnection: _UnixDomainSocketConnection,
}


def _connecting(store: Store, node: Node, asking: bool = False) -> tuple[type[Any], dict[str, Any]]:
    """The class of a connection to a node on the loop, and its arguments."""
    kind, settings = connecting(store.address, node, store.timeout, asking)
    return _KINDS[kind], {**settings, "retry": Retry(NoBackoff(), 0)}


async def _info(pool: Any, url: str) -> Any:
    try:
        return await Redis(connection_pool=pool).info()
    except REFUSED:
        raise
    except redis.ResponseError as error:
        raise answered(error, unidentified(url, error)) from error


async def _reply(connection: Any) -> Reply:
    try:
        return await connection.read_response()
    except redis.ResponseError as error:
        if last_words(error):
            raise ProtocolFault(str(error)) from error
        return error
