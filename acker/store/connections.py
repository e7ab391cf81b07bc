"""Connections to one server: kept while nobody uses them, and looked at before they are used again.

redis-py makes a connection, and logs in on it. What goes over it afterwards takes the shortest way, for pools
and connections of redis-py's spend several times what all the rest of a flight takes.
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
"""Bytes that are read at a time."""
_LAST_WORDS = 0.2
"""Seconds for which a server's last words are waited for, where it has ended a connection."""
_NOTHING = object()


class ProtocolFault(redis.exceptions.ConnectionError):
    """The last words of a server that could make nothing of what was sent, and has ended the connection."""


def last_words(reply: Reply) -> bool:
    """Return True for a reply after which the server ends the connection."""
    return isinstance(reply, redis.ResponseError) and str(reply).startswith("Protocol error")


class Connection:
    """A connection to a server, for one thread at a time. Who has not read all replies has to cut it.

    made: by redis-py, not connected yet. usual: seconds for which it waits to be written to, or to be read
    from. What fails raises what `acker.store.flight` calls `LOST` and `REFUSED`.
    """

    __slots__ = ("__weakref__", "_buffer", "_made", "_poll", "_reader", "_seconds", "_socket", "_usual")

    def __init__(self, made: Any, usual: float) -> None:
        self._made = made
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
        """Whether there is something to read that nobody has asked for: words, or the end of it."""
        if self._poll is not None:
            return bool(self._poll.poll(0)) or self._reader.has_data()
        try:  # over TLS, what comes need not be for who reads
            return bool(self._made.can_read()) or self._reader.has_data()
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return True

    def send(self, pieces: list[bytes]) -> None:
        """Sends bytes, each piece by a call of the system's of its own."""
        self._wait(self._usual)
        try:
            for piece in pieces:
                self._socket.sendall(piece)
        except TimeoutError as error:
            raise redis.exceptions.TimeoutError("Timeout writing to socket") from error
        except OSError as error:
            raise redis.exceptions.ConnectionError(f"Error while writing to socket: {error.args}") from error

    def read(self, count: int, patience: Callable[[], float]) -> list[Reply]:
        """The next replies, errors among them. patience: for how many seconds more each is waited for."""
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
        """What the server said where sending failed with an error; the error where it said nothing.

        count: replies that may come before.
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
        """Ends it. It is of no use any more."""
        self._made.disconnect()


class Connections:
    """The connections of one process to one server, `most` of them at most. For any thread.

    Beside these are those on which somebody waits for what is to come: as many as threads do so. Else they
    would keep all others from asking. kind, settings: of redis-py's connections.
    """

    def __init__(self, kind: type[Any], settings: dict[str, Any], most: int) -> None:
        self._kind, self._settings, self._most = kind, settings, most
        self._idle: list[Connection] = []
        # By what lives: a thread that is interrupted just when it has taken one does not hold it for ever.
        self._all: WeakSet[Connection] = WeakSet()
        self._waiting: WeakSet[Connection] = WeakSet()
        self._lock = threading.RLock()  # reentrant: a signal handler may ask the store, too
        self._closed = False

    def take(self, waits: bool = False) -> Connection:
        """A connection for the caller alone, which gives it back, or drops it.

        waits: for what is to come, by a command for which the server holds its reply back.
        Raises what `acker.store.flight` calls `LOST` and `REFUSED`; the former where too many are taken.
        """
        idle = self._idle
        while idle:
            try:
                one = idle.pop()  # the one that was used last: it is the likeliest to be whole
            except IndexError:
                break  # another thread was quicker
            if not one.stirs():
                if waits:
                    self._note_waiting(one)
                return one
            self.drop(one)
        with self._lock:
            if not waits and len(self._all) - len(self._waiting) >= self._most:
                raise redis.exceptions.MaxConnectionsError("Too many connections")
            one = Connection(self._kind(**self._settings), self._settings["socket_timeout"])
            self._all.add(one)
        if waits:
            self._note_waiting(one)
        try:
            one.connect()
        except BaseException:
            self.drop(one)
            raise
        return one

    def _note_waiting(self, one: Connection) -> None:
        with self._lock:
            self._waiting.add(one)

    def give(self, one: Connection) -> None:
        """Takes a connection back of which all replies were read."""
        if self._waiting and one in self._waiting:
            with self._lock:
                self._waiting.discard(one)
            if len(self._idle) >= self._most:
                self.drop(one)
                return
        self._idle.append(one)
        if self._closed:
            self.close()

    def drop(self, one: Connection) -> None:
        """Ends a connection that was taken."""
        one.cut()
        with self._lock:
            self._all.discard(one)
            self._waiting.discard(one)

    def close(self) -> None:
        """Ends those that nobody has taken; others when they are given back."""
        self._closed = True
        while self._idle:
            try:
                one = self._idle.pop()
            except IndexError:
                return  # another thread has taken it
            self.drop(one)
