"""Operations without I/O: generators that yield batches of requests and get their replies.

The same operation is run by `Store` and by `AsyncStore`. All requests of a batch may be sent side by side and
more than once, in any order, so they must be reads, or calls that take effect once. A batch may be of any
size: it is cut into flights, each sent after the answer to the flight before.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from acker.store import scripts
from acker.store.scripts import Script

T = TypeVar("T")

Reply: TypeAlias = Any
"""The server's answer, or its `redis.ResponseError`."""


Word: TypeAlias = bytes | str | int | float
"""An argument of a request."""

FLIGHT = 512
"""Most requests of a flight."""
FLIGHT_BYTES = 16 << 20
"""Bytes of arguments beyond which a flight of 64 requests takes no further one."""
_FEW = 64

NOTHING = (0, 0)
"""A wait for nothing but the reply."""


# Not frozen: a frozen one takes four times as long to make, and a call of a function takes hundreds.
@dataclass(slots=True)
class Request:
    """A command (`args`, its name first) or a script call (`script` with `keys` and `args`).

    Attributes:
        key: Any key of the request's slot: it selects the node of a cluster.
        args: The command and its words, or the script's arguments.
        script: The script of a script call.
        keys: The keys of a script call.
        wait: Copies of its writes before the request counts as answered: 1 for the server's append-only file
            on disk, and a number of replicas.
        one_server: True if the keys are in many slots of one server. On a cluster the request is not sent,
            and its reply is None.
        every: Seconds between two sends of a heartbeat, until its operation ends; 0: it is sent once.
    """

    key: bytes
    args: Sequence[Word]
    script: Script | None = None
    keys: Sequence[bytes] = ()
    wait: tuple[int, int] = NOTHING
    one_server: bool = False
    every: float = 0.0

    @property
    def blocks(self) -> bool:
        """True if the server may hold back the reply until data arrives."""
        return self.script is None and self.args[0] in ("XREAD", "WAIT")

    def command(self) -> Sequence[Word]:
        """The words of the request as the server gets them."""
        if self.script is None:
            return self.args
        call = "EVALSHA_RO" if self.script.reads else "EVALSHA"
        return call, self.script.sha, len(self.keys), *self.keys, *self.args


def command(name: str, key: bytes, *args: Word) -> Request:
    """A request for a plain command on a key."""
    return Request(key, (name, key, *args))


def script(
    name: str, keys: Sequence[bytes], args: Sequence[Word], wait: tuple[int, int] = NOTHING
) -> Request:
    """A request for a script on keys of one slot; only the script's function in `scripts.py` calls it."""
    return Request(keys[0], args, scripts.get(name), keys, wait)


def chain(members: Sequence[Request]) -> Request:
    """A request that makes the server run scripts one after another, as one (lua/store/chain.lua).

    Each has the line `@chained` in its header. A cluster's reply is None; a single server's is the list of
    the replies of the scripts that ran. A resend runs all of them again: each takes effect once by itself.
    """
    args: list[Word] = []
    for request in members:
        assert request.script is not None
        args += [request.script.name, len(request.keys), len(request.args), *request.args]
    own = [key for request in members for key in request.keys]
    wait = max(request.wait for request in members)
    return Request(own[0], args, scripts.get("chain"), own, wait, one_server=True)


def flights(requests: Sequence[Request]) -> Iterable[Sequence[Request]]:
    """Cuts a batch into flights, which are sent one after the other."""
    if len(requests) <= _FEW:
        return [requests] if requests else []
    return _cut(requests)


def _cut(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    first = size = 0
    for place, request in enumerate(requests):
        size += sum(len(word) for word in request.args if isinstance(word, bytes))
        count = place + 1 - first
        if count == FLIGHT or (count >= _FEW and size >= FLIGHT_BYTES):
            yield requests[first : place + 1]
            first, size = place + 1, 0
    if first < len(requests):
        yield requests[first:]


Operation: TypeAlias = Generator[list[Request], list[Reply], T]
"""A generator: yields batches of requests, gets the replies in the same order, returns its result."""


class InPieces(Generic[T]):
    """A long operation that is carried out in pieces, so that others get their turn in between.

    result: its result, when a piece has returned True.
    """

    result: T

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation
        self._batch: list[Request] | None = None

    def piece(self, seconds: float) -> Operation[bool]:
        """Carries out one batch at least, and no further one after that time; True if it has ended.

        Raises the errors of the operation, which is over then.
        """
        until = time.monotonic() + seconds
        try:
            batch = next(self._operation) if self._batch is None else self._batch
            while True:
                try:
                    replies = yield batch
                except Exception as error:  # noqa: BLE001 - the operation may know what to do
                    batch = self._operation.throw(error)
                else:
                    batch = self._operation.send(replies)
                if time.monotonic() >= until:
                    self._batch = batch
                    return False
        except StopIteration as ended:
            self.result = ended.value
            return True


def abreast(operations: Sequence[Operation[T]]) -> Operation[list[T]]:
    """Runs operations side by side, with one batch for their next requests. Returns their results, in order.

    No operation may depend on another. An error of one operation, or of a flight, ends all.
    """
    if len(operations) == 1:
        return [(yield from operations[0])]
    results: list[Any] = [None] * len(operations)
    running: list[tuple[int, Operation[T], list[Request]]] = []
    for place, operation in enumerate(operations):
        try:
            running.append((place, operation, next(operation)))
        except StopIteration as end:
            results[place] = end.value
    while running:
        replies = yield [request for _, _, requests in running for request in requests]
        asked, running, first = running, [], 0
        for place, operation, requests in asked:
            answers = replies[first : first + len(requests)]
            first += len(requests)
            try:
                running.append((place, operation, operation.send(answers)))
            except StopIteration as end:
                results[place] = end.value
    return results
