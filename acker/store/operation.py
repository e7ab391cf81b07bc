"""Operations without I/O: generators that yield batches of requests and get their replies.

The same operation is run by `Store` and by `AsyncStore`. All requests of a batch may be sent side by side and
more than once, in any order: what is in a batch must allow that (reads, or calls that take effect once). A
batch may be of any size: it is cut into flights, each sent when the one before is answered.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from acker.store import scripts
from acker.store.scripts import Script

T = TypeVar("T")

Reply: TypeAlias = Any
"""What the server answered, or the `redis.ResponseError` it answered with."""


Word: TypeAlias = bytes | str | int | float
"""An argument of a request."""

FLIGHT = 512
"""Most requests of a flight."""
FLIGHT_BYTES = 16 << 20
"""Bytes of arguments after which a flight takes no further request, if it has 64."""
_FEW = 64

NOTHING = (0, 0)
"""To wait for nothing but the reply."""


# Not frozen: that would take four times as long to make, and a call of a function takes hundreds.
@dataclass(slots=True)
class Request:
    """One command (`args`, its name first) or one script call (`script` with `keys` and `args`).

    `key` tells the node of a cluster: any key of the request's slot. `wait` says who has to have what it
    wrote before it counts as answered: the server's append-only file on its disk (1), and how many replicas.
    one_server: its keys are in many slots, so that one server has to have all; by a cluster it is answered
    None, and nothing is sent. every: seconds after which it is sent again, and again, until its operation
    has ended, as a heartbeat is (acker/store/heartbeats.py); 0: it is sent once.
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
        """Whether the server may hold back the reply until something has come."""
        return self.script is None and self.args[0] in ("XREAD", "WAIT")

    def command(self) -> Sequence[Word]:
        """The words that go to the server."""
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
    """A request for a script on keys of one slot: for the function that is the script's own."""
    return Request(keys[0], args, scripts.get(name), keys, wait)


def chain(members: Sequence[Request]) -> Request:
    """A request that has the server run scripts one after another, as one (lua/store/chain.lua).

    Each has the line `@chained` in its header. Answered None by a cluster; else with the replies of those
    that were run. Sent again it runs all again: each takes effect once by itself.
    """
    args: list[Word] = []
    for one in members:
        assert one.script is not None
        args += [one.script.name, len(one.keys), len(one.args), *one.args]
    own = [key for one in members for key in one.keys]
    wait = max(one.wait for one in members)
    return Request(own[0], args, scripts.get("chain"), own, wait, one_server=True)


def flights(requests: Sequence[Request]) -> Iterable[Sequence[Request]]:
    """Cuts a batch into flights: parts that are sent one after the other."""
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
"""Yields batches of requests, is sent the replies in the same order, returns its result."""


def abreast(operations: Sequence[Operation[T]]) -> Operation[list[T]]:
    """Runs operations side by side: what all of them ask next is one batch. Returns their results, in order.

    None of them may depend on what another does. What one raises, or what a flight raises, ends all.
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
            own = replies[first : first + len(requests)]
            first += len(requests)
            try:
                running.append((place, operation, operation.send(own)))
            except StopIteration as end:
                results[place] = end.value
    return results
