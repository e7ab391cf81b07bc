"""A flight of requests on its way: what goes to which node, and what is to be sent again. No I/O.

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
"""Errors that a server answers with for a while; nothing was applied, and sending again helps."""
LOST = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)
"""The connection failed; what was sent may have been applied."""
REFUSED = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthenticationWrongNumberOfArgsError,
    redis.exceptions.NoPermissionError,
)
"""The server does not let this client in; trying again does not help."""

OLDEST_SERVER = (7, 0)
VALUE_BYTES, LEAST_VALUE_BYTES = 512 << 20, 1 << 20
"""Bytes of one value that a server takes by default (`proto-max-bulk-len`), and that every server takes."""
ASK_LIMIT: tuple[Any, ...] = ("CONFIG", "GET", "proto-max-bulk-len")
_PIECE = 1 << 16
"""Bytes that a call of the system's sends at least, where there are so many."""

_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A handshake that is cut says nothing of trust: a balancer without a server does so."""
_LASTING = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EPROTOTYPE}
"""Numbers of the system's errors that another attempt does not mend."""


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
    """What a server's refusal to let a client in, or to tell it what it has to know, is raised as."""
    if rights.missing(error):
        return rights.lacking(url, error)
    return StoreMisconfigured(f"{shown(url)} refuses this client: {error}")


def answered(error: redis.ResponseError, otherwise: AckerError) -> Exception:
    """What a server's error to a question about itself is raised as: one that passes as a lost connection."""
    return redis.exceptions.ConnectionError(str(error)) if _passing(error) else otherwise


def no_answer(url: str, error: Exception) -> StoreMisconfigured:
    """The error where a node is asked for the places of keys and knows no such question."""
    return StoreMisconfigured(f"{shown(url)} is no cluster and has no Sentinels: {error}")


def unidentified(url: str, error: Exception) -> StoreError:
    """The error where a server refuses to tell what it is."""
    return StoreError(f"{shown(url)} does not tell what server it is: {error}")


def check_lost(error: Exception, url: str, node: Node, before: BaseException | None = None) -> None:
    """Raises StoreMisconfigured or MissingRights where a connection failed for what does not pass.

    before: what was being handled when the connection was asked for: it is no cause of the error.
    """
    if isinstance(error, REFUSED):
        raise refusal(url, error) from error
    cause: BaseException | None = error
    while cause is not None and cause is not before and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__  # redis-py has an error of its own for the system's
    if isinstance(cause, OSError) and cause is not before and _lasting(cause, node):
        raise StoreMisconfigured(f"no connection to {shown(url)}: {error}") from error


def _lasting(error: OSError, node: Node) -> bool:
    """True where an error on the way to a node stays until somebody mends a setting: TLS, a file, a right."""
    if isinstance(error, ssl.SSLError):
        return not isinstance(error, _CUT)
    if isinstance(error, socket.gaierror):  # its numbers are its own
        return False
    # A socket in the file system is not there while its server is away; of another file, TLS needs it.
    missing = error.errno == errno.ENOENT and bool(node[1])
    return missing or error.errno in _LASTING


def value_limit(reply: Reply) -> int:
    """The limit in a server's answer to `ASK_LIMIT`; the default where it may not be asked."""
    found = list(reply.values()) if isinstance(reply, dict) else reply
    text = found[-1] if isinstance(found, list) and found else b""
    return int(text) if text.isdigit() else VALUE_BYTES


def refused(reply: Reply) -> bool:
    """Whether a reply is an error that the operation itself has no name for."""
    named = ("SPOUTS", "WRITER", "FULL", "ACKER")
    return isinstance(reply, redis.ResponseError) and not str(reply).startswith(named)


def refusal_of(request: Request, reply: Reply) -> AckerError:
    """What is raised for a reply that is `refused`."""
    unreadable = str(reply).startswith("UNREADABLE")
    return (UnreadableRecord if unreadable else StoreError)(f"{request.command()[0]!r} was refused: {reply}")


def _passing(reply: Reply) -> bool:
    if isinstance(reply, PASSING + LOST):
        return True
    return isinstance(reply, redis.ResponseError) and str(reply).startswith(("NOREPLICAS", "BUSY "))


def demoted(replies: Sequence[Reply]) -> bool:
    """Whether a server says that it is a replica: the name that led to it may lead elsewhere by now."""
    for reply in replies:  # noqa: SIM110 - a generator takes longer than all that it looks at
        if isinstance(reply, redis.exceptions.ReadOnlyError):
            return True
    return False


@dataclass(slots=True)
class Parcel:
    """What goes to one node in one pipeline: requests by their numbers, and what they need before them."""

    node: Node
    numbers: Sequence[int]
    load: bool = False
    """Whether the node gets the scripts first."""
    asking: Collection[int] = ()
    """Numbers of requests that a redirection sent to this node for once."""
    wait: tuple[int, int] = NOTHING
    """What its requests wait for at most; known when it is packed."""
    blocks: bool = False
    """Whether the server may hold back a reply; known when it is packed."""
    sent_at: float = 0.0
    """When it was sent, on the monotonic clock; 0 where nobody asks."""


class Flight:
    """The requests of a flight and the replies they have got so far, for `timeout` seconds from now."""

    def __init__(self, requests: Sequence[Request], url: str, timeout: float) -> None:
        self.requests = requests
        self._url, self._timeout = url, timeout
        self._deadline, self._usual = time.monotonic() + timeout, patience(timeout)
        self.replies: list[Reply] = []
        """For each request its reply, where none is missing."""
        self.missing: Sequence[int] = range(len(requests))
        self.cause: Exception | None = None
        self.round_trip: float | None = None
        """Seconds that the last node to answer took; None where none did, or had to wait for something."""
        self._before = sys.exception()
        self._need_scripts: set[Node] = set()
        self._asked: dict[int, Node] = {}

    @property
    def longest(self) -> int:
        """Bytes of the longest value of all requests."""
        return max(map(longest, self.requests), default=0)

    def check_size(self, limit: int) -> None:
        """Raises ValueTooLong where a request has a longer value than that."""
        if (size := self.longest) > limit:
            raise ValueTooLong(size, limit, shown(self._url))

    def begin(self) -> None:
        """Begins another round: what went wrong in the last one is forgotten."""
        self.cause = None

    def parcels(self, nodes: Nodes) -> list[Parcel]:
        """The requests to be sent now. One whose keys lie nowhere at present is left out."""
        only = nodes.only
        if only is not None and self.missing and not self._asked:
            return [Parcel(only, self.missing, only in self._need_scripts)]
        asked, self._asked = self._asked, {}
        if nodes.many:
            self.replies = self.replies or [None] * len(self.requests)
            self.missing = [number for number in self.missing if not self.requests[number].one_server]
        keys = {number: self.requests[number].key for number in self.missing}
        by_node, nowhere = nodes.group(keys, asked)
        if nowhere:
            self.cause = self.cause or redis.exceptions.ClusterDownError("no known node has the keys")
        return [
            Parcel(node, own, node in self._need_scripts, asked.keys() & own if asked else ())
            for node, own in by_node.items()
        ]

    def pack(self, parcel: Parcel) -> tuple[list[bytes], int]:
        """The bytes of a parcel's commands, and how many replies they have."""
        # A pipeline of redis-py's would do, but looks at each of the many words of a command in Python.
        packed: list[bytes] = []
        if parcel.load:
            packed += [_packed(("SCRIPT", "LOAD", script.text)) for script in scripts.load_all().values()]
        for number in parcel.numbers:
            request = self.requests[number]
            if number in parcel.asking:
                packed.append(_packed(("ASKING",)))
            packed.append(_packed(request.command()))
            if request.wait is not NOTHING and request.wait > parcel.wait:
                parcel.wait = request.wait
            if request.script is None and request.blocks:
                parcel.blocks = True
        if parcel.wait != NOTHING:
            # Less than the time that a reply may take: an answer is better than a connection that failed.
            milliseconds = max(1, int(self._timeout * 250))
            file, replicas = parcel.wait
            words = ("WAITAOF", file, replicas, milliseconds) if file else ("WAIT", replicas, milliseconds)
            packed.append(_packed(words))
        return _pieces(packed), len(packed)

    def take(self, parcel: Parcel, replies: list[Reply], nodes: Nodes) -> None:
        """Notes the replies to a parcel; what is to be sent again stays missing."""
        if parcel.sent_at and parcel.wait == NOTHING and not parcel.blocks:
            self.round_trip = time.monotonic() - parcel.sent_at
        whole = len(replies) == len(parcel.numbers) == len(self.requests)
        if whole and parcel.wait == NOTHING and not _errors(replies):
            self.replies, self.missing = replies, ()  # as nearly always
        else:
            self._sort(parcel, replies, nodes)

    def _sort(self, parcel: Parcel, replies: list[Reply], nodes: Nodes) -> None:
        at = len(scripts.load_all()) if parcel.load else 0
        for reply in replies[:at]:
            if rights.missing(reply):
                raise rights.lacking(self._url, reply)
            if isinstance(reply, redis.ResponseError) and not isinstance(reply, PASSING):
                raise StoreError(f"a script was refused: {reply}")
        self._need_scripts.discard(parcel.node)
        durable = parcel.wait == NOTHING or self._durable(parcel, replies[-1])
        self.replies = self.replies or [None] * len(self.requests)
        done = set()
        for number in parcel.numbers:
            at += number in parcel.asking
            reply, at = replies[at], at + 1
            if isinstance(reply, redis.exceptions.NoScriptError):
                self._need_scripts.add(parcel.node)
                if number in parcel.asking:
                    self._asked[number] = parcel.node
            elif _passing(reply):
                self._redirect(number, reply, parcel.node, nodes)
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

    def _durable(self, parcel: Parcel, reply: Reply) -> bool:
        """Whether what a parcel waited for has come; where not, it is sent again, and waits again."""
        if rights.missing(reply):
            raise rights.lacking(self._url, reply, "WAITAOF" if parcel.wait[0] else "WAIT")
        if isinstance(reply, redis.ResponseError):
            raise StoreMisconfigured(f"{shown(self._url)} cannot wait for what it has to wait for: {reply}")
        file, replicas = reply if isinstance(reply, list) else (0, reply)
        if file >= parcel.wait[0] and replicas >= parcel.wait[1]:
            return True
        self.cause = redis.exceptions.TimeoutError(
            f"{replicas} of {parcel.wait[1]} replicas and {file} of {parcel.wait[0]} files have it"
        )
        return False

    def _redirect(self, number: int, error: Exception, node: Node, nodes: Nodes) -> None:
        self.cause = error
        if isinstance(error, redis.exceptions.MovedError):
            nodes.moved(error, node)
        elif isinstance(error, redis.exceptions.AskError):
            self._asked[number] = target(error, node)
        elif not isinstance(error, redis.exceptions.TryAgainError):
            nodes.doubt()

    def lost(self, node: Node, error: Exception, nodes: Nodes) -> None:
        """Notes that a connection failed: what was on it stays missing. Raises what `check_lost` raises."""
        if isinstance(error, ProtocolFault) and "bulk length" in str(error):
            size = max(longest(self.requests[number]) for number in self.missing)
            raise ValueTooLong(size, 0, shown(self._url)) from error
        check_lost(error, self._url, node, self._before)
        nodes.lost(node)
        self.cause = error

    @property
    def left(self) -> float:
        """Seconds that what is under way has left: half the time more than the flight."""
        return max(0.01, self._deadline + self._timeout / 2 - time.monotonic())

    def patience(self) -> float:
        """Seconds for which the next reply is waited for."""
        usual, left = self._usual, self._deadline + self._timeout / 2 - time.monotonic()
        return usual if left > usual else max(0.01, left)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._deadline

    def check_time(self) -> None:
        """Raises StoreUnavailable when the time is over."""
        if self.late:
            cause = self.cause or "its scripts vanish as fast as they are loaded"
            raise StoreUnavailable(
                f"{shown(self._url)} did not answer within {self._timeout} s: {cause}"
            ) from self.cause


def longest(request: Request) -> int:
    """How many bytes the longest value of a request has."""
    return max((len(word) for word in request.args if isinstance(word, bytes | str)), default=0)


def patience(timeout: float) -> float:
    """Seconds for which a server's next words are waited for, where a flight is given `timeout` seconds."""
    return max(0.1, timeout / 2)


def _errors(replies: Sequence[Reply]) -> bool:
    for reply in replies:  # noqa: SIM110 - a generator takes longer than all that it looks at
        if isinstance(reply, Exception):
            return True
    return False


def _packed(words: Sequence[Any]) -> bytes:
    """A command as it is sent. hiredis gets no number: it crashes where a signal handler raises meanwhile."""
    texts: tuple[Any, ...] = tuple([str(word) if type(word) is int else word for word in words])
    packed: bytes = hiredis.pack_command(texts)
    return packed


def _pieces(packed: list[bytes]) -> list[bytes]:
    """The bytes of commands in pieces of about `_PIECE`: each is a call of the system's of its own."""
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
        yield random.SystemRandom().uniform(0, ceiling)  # not the generator that a user may have seeded
        ceiling = min(0.5, ceiling * 2)
