"""Connections to one server: kept while idle, and checked before their next use.

redis-py makes a connection and logs in. After that this module reads and writes the socket itself, because
redis-py's pools and connections take several times as long as the rest of a flight.
"""

import select
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import hiredis
import redis
from redis.connection import DefaultParser

from acker.store.operation import Reply

_READ = 1 << 16
"""Bytes of one read."""
_LAST_WORDS = 0.2
"""Seconds to wait for a server's last reply on a connection that it has ended."""
_NOTHING = object()


class ProtocolFault(redis.exceptions.ConnectionError):
    """The last reply of a server that could not parse the request and has ended the connection."""


def last_words(reply: Reply) -> bool:
    """Return True for a reply after which the server ends the connection."""
    return isinstance(reply, redis.ResponseError) and str(reply).startswith("Protocol error")


class Connection:
    """A connection to a server, for one thread at a time. A user that leaves replies unread must cut it.

    Failures raise the errors that `acker.store.flight` calls `LOST` and `REFUSED`.

    Args:
        made: redis-py's connection, not connected yet.
        usual: Time-out of a write or a read, in seconds.
    """

    __slots__ = ("__weakref__", "_buffer", "_made", "_poll", "_reader", "_seconds", "_socket", "_usual")

    def __init__(self, base: Any, usual: float) -> None:
        self._made = base
        self._usual = self._seconds = usual
        self._socket: Any = None
        self._poll: Any = None
        self._reader: Any = None
        self._buffer = bytearray(_READ)

    def connect(self) -> None:
        """Connects, and logs in."""
        self._made.connect()
        self._socket = self._made._sock
        self._reader = hiredis.Reader(
            protocolError=redis.exceptions.InvalidResponse,
            replyError=DefaultParser.parse_error,
            notEnoughData=_NOTHING,
        )
        if not hasattr(self._socket, "pending"):
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)

    def stirs(self) -> bool:
        """True if the socket has unexpected input: a reply nobody waits for, or its end."""
        if self._poll is not None:
            return bool(self._poll.poll(0)) or self._reader.has_data()
        try:  # over TLS, the input may be none of the reader's data
            return bool(self._made.can_read()) or self._reader.has_data()
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return True

    def send(self, pieces: list[bytes]) -> None:
        """Sends bytes, with one system call for each piece."""
        self._wait(self._usual)
        try:
            for piece in pieces:
                self._socket.sendall(piece)
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout writing to socket") from error
        except OSError as error:
            raise redis.exceptions.ConnectionError(f"Error while writing to socket: {error.args}") from error

    def read(self, count: int, patience: Callable[[], float]) -> list[Reply]:
        """The next replies, including errors. patience: further seconds to wait for each reply."""
        replies: list[Reply] = []
        reader = self._reader
        while len(replies) < count:
            reply = reader.gets()
            if reply is _NOTHING:
                self._feed(patience())
            elif isinstance(reply, redis.exceptions.ConnectionError):
                raise reply  # the server ends it, or has to load its data first
            elif last_words(reply):
                raise ProtocolFault(str(reply))
            else:
                replies.append(reply)
        return replies

    def end(self, count: int, error: Exception) -> Exception:
        """The server's last reply after a failed send; `error` where it sent none.

        count: Number of replies that may come before it.
        """
        try:
            self.read(count, lambda: _LAST_WORDS)
        except ProtocolFault as said:
            return said
        except (redis.exceptions.RedisError, OSError):
            pass
        return error

    def _feed(self, patience: float) -> None:
        self._wait(patience)
        try:
            size = self._socket.recv_into(self._buffer)
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout reading from socket") from error
        except OSError as error:
            raise redis.exceptions.ConnectionError(
                f"Error while reading from socket: {error.args}"
            ) from error
        if not size:
            raise redis.exceptions.ConnectionError("Connection closed by server.")
        self._reader.feed(self._buffer, 0, size)

    def _wait(self, seconds: float) -> None:
        if seconds != self._seconds:
            self._socket.settimeout(seconds)
            self._seconds = seconds

    def cut(self) -> None:
        """Ends the connection, which is of no further use."""
        self._made.disconnect()


class Connections:
    """The connections of one process to one server, `most` of them at most. For any thread.

    Connections of blocking reads are not counted, because they would keep all other threads from asking.
    There are as many of these as threads that read so.

    Args:
        kind: Class of redis-py's connections.
        settings: Their arguments.
        most: Most connections, without connections of blocking reads.
    """

    def __init__(self, kind: type[Any], settings: dict[str, Any], most: int) -> None:
        self._kind, self._settings, self._most = kind, settings, most
        self._idle: list[Connection] = []
        # Weak: a thread that is interrupted right after it took a connection does not hold it for ever.
        self._all: WeakSet[Connection] = WeakSet()
        self._waiting: WeakSet[Connection] = WeakSet()
        self._lock = threading.RLock()  # reentrant: a signal handler may ask the store
        self._closed = False

    def take(self, waits: bool = False) -> Connection:
        """A connection for the caller alone, which gives it back, or drops it.

        Raises the errors that `acker.store.flight` calls `LOST` and `REFUSED`; `LOST` also if all are taken.

        Args:
            waits: True for a blocking read: the server holds its reply back.
        """
        idle = self._idle
        while idle:
            try:
                connection = idle.pop()  # the latest used connection: it is the likeliest to be whole
            except IndexError:
                break  # another thread was quicker
            if not connection.stirs():
                if waits:
                    self._note_waiting(connection)
                return connection
            self.drop(connection)
        with self._lock:
            if not waits and len(self._all) - len(self._waiting) >= self._most:
                raise redis.exceptions.MaxConnectionsError("Too many connections")
            connection = Connection(self._kind(**self._settings), self._settings["socket_timeout"])
            self._all.add(connection)
        if waits:
            self._note_waiting(connection)
        try:
            connection.connect()
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def _note_waiting(self, connection: Connection) -> None:
        with self._lock:
            self._waiting.add(connection)

    def give(self, connection: Connection) -> None:
        """Takes a connection back whose replies were all read."""
        if self._waiting and connection in self._waiting:
            with self._lock:
                self._waiting.discard(connection)
            if len(self._idle) >= self._most:
                self.drop(connection)
                return
        self._idle.append(connection)
        if self._closed:
            self.close()

    def drop(self, connection: Connection) -> None:
        """Ends a taken connection."""
        connection.cut()
        with self._lock:
            self._all.discard(connection)
            self._waiting.discard(connection)

    def close(self) -> None:
        """Ends the idle connections, and each taken connection when it comes back."""
        self._closed = True
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return  # another thread has taken it
            self.drop(connection)
