"""A flight of requests: distributes them to nodes and decides on resends. No I/O.

Shared by `acker.store.client.Store` and its asyncio twin.
"""

import errno
import random
import socket
import ssl
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis
import redis

from acker.errors import (
    AckerError,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    UnreadableRecord,
    ValueTooLong,
)
from acker.store import rights, scripts
from acker.store.address import Node, shown
from acker.store.connections import ProtocolFault
from acker.store.nodes import Nodes, target
from acker.store.operation import NOTHING, Reply, Request

PASSING = (
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.MovedError,
    redis.exceptions.AskError,
)
"""Temporary errors of a server; nothing was applied, and sending again helps."""
LOST = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)
"""The connection failed; the requests may have been applied."""
REFUSED = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthenticationWrongNumberOfArgsError,
    redis.exceptions.NoPermissionError,
)
"""The server does not let this client in; trying again does not help."""

OLDEST_SERVER = (7, 0)
VALUE_BYTES, LEAST_VALUE_BYTES = 512 << 20, 1 << 20
"""Most bytes of one value by default (`proto-max-bulk-len`), and the least that this limit can be."""
ASK_LIMIT: tuple[Any, ...] = ("CONFIG", "GET", "proto-max-bulk-len")
_PIECE = 1 << 16
"""Least bytes of one system call that sends, where there are so many."""

_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A cut handshake is no sign of missing trust: a load balancer without a server cuts it, too."""
_LASTING = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EPROTOTYPE}
"""Numbers of system errors that remain on another attempt."""


def check_server(facts: dict[str, Any], url: str, cluster: bool = False) -> None:
    """Raises StoreMisconfigured if a server's INFO shows that it cannot keep acker's promises."""
    version = str(facts.get("redis_version", "0"))
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    if numbers < OLDEST_SERVER:
        raise StoreMisconfigured(f"{shown(url)} speaks Redis {version}; acker needs 7.0 or newer")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreMisconfigured(
            f"{shown(url)} has maxmemory-policy {policy}, which may evict trees; set it to noeviction"
        )
    mode = facts.get("redis_mode", facts.get("server_mode"))
    if mode == "cluster" and not cluster:
        raise StoreMisconfigured(f"{shown(url)} is a node of a cluster: name it by redis+cluster://")


def refusal(url: str, error: Exception) -> AckerError:
    """The error for a server that refuses a client, or does not give it an answer that it needs."""
    if rights.missing(error):
        return rights.lacking(url, error)
    return StoreMisconfigured(f"{shown(url)} refuses this client: {error}")


def answered(error: redis.ResponseError, otherwise: AckerError) -> Exception:
    """The error for a server's failure to describe itself; a temporary one counts as a lost connection."""
    return redis.exceptions.ConnectionError(str(error)) if _passing(error) else otherwise


def no_answer(url: str, error: Exception) -> StoreMisconfigured:
    """The error for a node that does not know the question for the places of keys."""
    return StoreMisconfigured(f"{shown(url)} is no cluster and has no Sentinels: {error}")


def unidentified(url: str, error: Exception) -> StoreError:
    """The error for a server that refuses INFO."""
    return StoreError(f"{shown(url)} refuses INFO, so its kind is unknown: {error}")


def check_lost(error: Exception, url: str, node: Node, before: BaseException | None = None) -> None:
    """Raises StoreMisconfigured or MissingRights if a connection failed for a lasting cause.

    before: The error in handling when the connection was asked for; it is no cause of `error`.
    """
    if isinstance(error, REFUSED):
        raise refusal(url, error) from error
    cause: BaseException | None = error
    while cause is not None and cause is not before and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__  # redis-py has an error of its own for the system's
    if isinstance(cause, OSError) and cause is not before and _lasting(cause, node):
        raise StoreMisconfigured(f"no connection to {shown(url)}: {error}") from error


def _lasting(error: OSError, node: Node) -> bool:
    """True for an error that lasts until a setting is mended: TLS, a file, a right."""
    if isinstance(error, ssl.SSLError):
        return not isinstance(error, _CUT)
    if isinstance(error, socket.gaierror):  # its numbers are its own
        return False
    # A socket file is missing while its server is away; any other missing file is one that TLS needs.
    missing = error.errno == errno.ENOENT and bool(node[1])
    return missing or error.errno in _LASTING


def value_limit(reply: Reply) -> int:
    """The limit in a server's answer to `ASK_LIMIT`; the default where the question is not allowed."""
    found = list(reply.values()) if isinstance(reply, dict) else reply
    text = found[-1] if isinstance(found, list) and found else b""
    return int(text) if text.isdigit() else VALUE_BYTES


def refused(reply: Reply) -> bool:
    """True if a reply is an error that the operation does not handle itself."""
    named = ("SPOUTS", "REMOVED", "WRITER", "FULL", "ACKER")
    return isinstance(reply, redis.ResponseError) and not str(reply).startswith(named)


def refusal_of(request: Request, reply: Reply) -> AckerError:
    """The error for a reply that is `refused`."""
    unreadable = str(reply).startswith("UNREADABLE")
    return (UnreadableRecord if unreadable else StoreError)(f"{request.command()[0]!r} was refused: {reply}")


def _passing(reply: Reply) -> bool:
    return isinstance(reply, PASSING + LOST) or _says(reply, "BUSY ") or _says(reply, "NOREPLICAS")


def _says(reply: Reply, word: str) -> bool:
    return isinstance(reply, redis.ResponseError) and str(reply).startswith(word)


def demoted(replies: Sequence[Reply]) -> bool:
    """True if a reply shows that the server is a replica: its name may lead elsewhere by now."""
    for reply in replies:  # noqa: SIM110 - a generator takes longer than the loop
        if isinstance(reply, redis.exceptions.ReadOnlyError):
            return True
    return False


@dataclass(slots=True)
class NodeBatch:
    """The requests for one node in one pipeline, by their numbers, and the words that go before them."""

    node: Node
    numbers: Sequence[int]
    load: bool = False
    """True if the node gets the scripts first."""
    asking: Collection[int] = ()
    """Numbers of requests that a redirection sent to this node once."""
    wait: tuple[int, int] = NOTHING
    """The most that a request waits for: files and replicas. Set by `Flight.pack`."""
    blocks: bool = False
    """True if the server may hold back a reply. Set by `Flight.pack`."""
    sent_at: float = 0.0
    """Time of sending, on the monotonic clock; 0 where it is not measured."""


class Flight:
    """The requests of a flight and the replies they have got so far, for `timeout` seconds from now."""

    def __init__(self, requests: Sequence[Request], url: str, timeout: float) -> None:
        self.requests = requests
        self._url, self._timeout = url, timeout
        self._deadline, self._usual = time.monotonic() + timeout, patience(timeout)
        self.replies: list[Reply] = []
        """The reply of each request, where none is missing."""
        self.missing: Sequence[int] = range(len(requests))
        self.cause: Exception | None = None
        self.round_trip: float | None = None
        """Seconds until the last node's answer; None without an answer, or after a wait of a node."""
        self._before = sys.exception()
        self._need_scripts: set[Node] = set()
        self._asked: dict[int, Node] = {}

    @property
    def longest(self) -> int:
        """Bytes of the longest value of all requests."""
        return max(map(longest, self.requests), default=0)

    def check_size(self, limit: int) -> None:
        """Raises ValueTooLong if a request has a longer value."""
        if (size := self.longest) > limit:
            raise ValueTooLong(size, limit, shown(self._url))

    def begin(self) -> None:
        """Begins another round: the error of the last round is forgotten."""
        self.cause = None

    def node_batches(self, nodes: Nodes) -> list[NodeBatch]:
        """The requests to be sent now, without requests whose keys lie nowhere at present."""
        only = nodes.only
        if only is not None and self.missing and not self._asked:
            return [NodeBatch(only, self.missing, only in self._need_scripts)]
        asked, self._asked = self._asked, {}
        if nodes.many:
            self.replies = self.replies or [None] * len(self.requests)
            self.missing = [number for number in self.missing if not self.requests[number].one_server]
        keys = {number: self.requests[number].key for number in self.missing}
        by_node, nowhere = nodes.group(keys, asked)
        if nowhere:
            self.cause = self.cause or redis.exceptions.ClusterDownError("no known node has the keys")
        return [
            NodeBatch(node, own, node in self._need_scripts, asked.keys() & own if asked else ())
            for node, own in by_node.items()
        ]

    def pack(self, batch: NodeBatch) -> tuple[list[bytes], int]:
        """The bytes of a batch's commands, and the number of their replies."""
        # redis-py's pipeline would do, but looks at each of the many words of a command in Python.
        packed: list[bytes] = []
        if batch.load:
            packed += [_packed(("SCRIPT", "LOAD", script.text)) for script in scripts.load_all().values()]
        for number in batch.numbers:
            request = self.requests[number]
            if number in batch.asking:
                packed.append(_packed(("ASKING",)))
            packed.append(_packed(request.command()))
            if request.wait is not NOTHING and request.wait > batch.wait:
                batch.wait = request.wait
            if request.script is None and request.blocks:
                batch.blocks = True
        if batch.wait != NOTHING:
            # Less than the time-out of a reply: an answer is better than a failed connection.
            milliseconds = max(1, int(self._timeout * 250))
            file, replicas = batch.wait
            words = ("WAITAOF", file, replicas, milliseconds) if file else ("WAIT", replicas, milliseconds)
            packed.append(_packed(words))
        return _pieces(packed), len(packed)

    def take(self, batch: NodeBatch, replies: list[Reply], nodes: Nodes) -> None:
        """Notes the replies to a batch; requests to be sent again stay missing."""
        if batch.sent_at and batch.wait == NOTHING and not batch.blocks:
            self.round_trip = time.monotonic() - batch.sent_at
        whole = len(replies) == len(batch.numbers) == len(self.requests)
        if whole and batch.wait == NOTHING and not _errors(replies):
            self.replies, self.missing = replies, ()  # as nearly always
            nodes.busy.pop(batch.node, None)
        else:
            if not any(_says(reply, "BUSY ") for reply in replies):
                nodes.busy.pop(batch.node, None)
            self._sort(batch, replies, nodes)

    def _sort(self, batch: NodeBatch, replies: list[Reply], nodes: Nodes) -> None:
        at = len(scripts.load_all()) if batch.load else 0
        for reply in replies[:at]:
            if rights.missing(reply):
                raise rights.lacking(self._url, reply)
            if isinstance(reply, redis.ResponseError) and not isinstance(reply, PASSING):
                raise StoreError(f"a script was refused: {reply}")
        self._need_scripts.discard(batch.node)
        durable = batch.wait == NOTHING or self._durable(batch, replies[-1])
        self.replies = self.replies or [None] * len(self.requests)
        done = set()
        for number in batch.numbers:
            at += number in batch.asking
            reply, at = replies[at], at + 1
            if isinstance(reply, redis.exceptions.NoScriptError):
                self._need_scripts.add(batch.node)
                if number in batch.asking:
                    self._asked[number] = batch.node
            elif _passing(reply):
                self._redirect(number, reply, batch.node, nodes)
            elif rights.missing(reply):
                request = self.requests[number]
                what = request.script.name if request.script else str(request.args[0])
                raise rights.lacking(self._url, reply, what, request.key)
            elif refused(reply):
                raise refusal_of(self.requests[number], reply)
            elif durable or self.requests[number].wait == NOTHING:
                self.replies[number] = reply
                done.add(number)
        self.missing = [number for number in self.missing if number not in done]

    def _durable(self, batch: NodeBatch, reply: Reply) -> bool:
        """True if the files and replicas have a batch's writes. If not, it is sent and waits again."""
        if rights.missing(reply):
            raise rights.lacking(self._url, reply, "WAITAOF" if batch.wait[0] else "WAIT")
        if isinstance(reply, redis.ResponseError):
            raise StoreMisconfigured(
                f"{shown(self._url)} does not support WAITAOF or WAIT, which wait_fsync and wait_replicas "
                f"need: {reply}"
            )
        file, replicas = reply if isinstance(reply, list) else (0, reply)
        if file >= batch.wait[0] and replicas >= batch.wait[1]:
            return True
        self.cause = redis.exceptions.TimeoutError(
            f"{replicas} of {batch.wait[1]} replicas and {file} of {batch.wait[0]} files have it"
        )
        return False

    def _redirect(self, number: int, error: Exception, node: Node, nodes: Nodes) -> None:
        self.cause = nodes.note_busy(node, error) if _says(error, "BUSY ") else error
        if isinstance(error, redis.exceptions.MovedError):
            nodes.moved(error, node)
        elif isinstance(error, redis.exceptions.AskError):
            self._asked[number] = target(error, node)
        elif not isinstance(error, redis.exceptions.TryAgainError):
            nodes.doubt()

    def lost(self, node: Node, error: Exception, nodes: Nodes) -> None:
        """Notes that a connection failed: its requests stay missing. Raises the errors of `check_lost`."""
        if isinstance(error, ProtocolFault) and "bulk length" in str(error):
            size = max(longest(self.requests[number]) for number in self.missing)
            raise ValueTooLong(size, 0, shown(self._url)) from error
        check_lost(error, self._url, node, self._before)
        nodes.lost(node)
        self.cause = error

    @property
    def left(self) -> float:
        """Seconds left for requests under way: until half a time-out after the flight's deadline."""
        return max(0.01, self._deadline + self._timeout / 2 - time.monotonic())

    def patience(self) -> float:
        """Seconds to wait for the next reply."""
        usual, left = self._usual, self._deadline + self._timeout / 2 - time.monotonic()
        return usual if left > usual else max(0.01, left)

    @property
    def late(self) -> bool:
        """True if the time is over."""
        return time.monotonic() >= self._deadline

    def check_time(self) -> None:
        """Raises StoreUnavailable when the time is over."""
        if self.late:
            cause = self.cause or "its scripts vanish as fast as they are loaded"
            raise StoreUnavailable(
                f"{shown(self._url)} did not answer within {self._timeout} s: {cause}"
            ) from self.cause


def longest(request: Request) -> int:
    """Bytes of the longest value of a request."""
    return max((len(word) for word in request.args if isinstance(word, bytes | str)), default=0)


def patience(timeout: float) -> float:
    """Seconds to wait for a server's next bytes in a flight of `timeout` seconds."""
    return max(0.1, timeout / 2)


def _errors(replies: Sequence[Reply]) -> bool:
    for reply in replies:  # noqa: SIM110 - a generator takes longer than the loop
        if isinstance(reply, Exception):
            return True
    return False


def _packed(words: Sequence[Any]) -> bytes:
    """The bytes of a command. hiredis gets no number: it crashes if a signal handler raises meanwhile."""
    texts: tuple[Any, ...] = tuple([str(word) if type(word) is int else word for word in words])
    packed: bytes = hiredis.pack_command(texts)
    return packed


def _pieces(packed: list[bytes]) -> list[bytes]:
    """The bytes of commands in pieces of about `_PIECE`, one for each system call."""
    if sum(map(len, packed)) < _PIECE:
        return [b"".join(packed)]
    pieces, small, size = list[bytes](), list[bytes](), 0
    for one in packed:
        small.append(one)
        size += len(one)
        if size >= _PIECE:
            pieces.append(b"".join(small))
            small, size = [], 0
    return [*pieces, b"".join(small)] if small else pieces


def pauses() -> Iterator[float]:
    """Seconds to wait before each resend: exponential with full jitter, at most half a second."""
    ceiling = 0.01
    while True:
        yield random.SystemRandom().uniform(0, ceiling)  # a generator that no user has seeded
        ceiling = min(0.5, ceiling * 2)
