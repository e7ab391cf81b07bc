"""A deterministic simulator of faults: actors share a real store, and a history says what happens to them.

An actor is one process: a method of a `World`, which is given a ledger of its own. It stops before each
request. A history is a list of moves, carried out one after another:

    ("driver", 5)             the actor sends five requests and has the replies; one that is over begins anew
    ("driver", "publish")     it goes on until it would send that script (again), or to its end
    ("driver", "lose")        its next request takes effect, but the reply is lost: it sends the flight again
    ("driver", "fail")        the same, and then StoreUnavailable: it does not know what has taken effect
    ("driver", "die")         its process ends
    ("again", "stage")        copies of all such requests that were sent arrive once more, at any later time
    ("back", 4)               the store is set back by four writes, as where a replica that lags takes over
    ("part", 4, 2)            the same for some shards and streams alone, as a node of a cluster; 2 says which
    ("tick", 2)               an event of the world happens twice

After its last move all is calm: each actor comes to its end, and the world checks what has become of all.
All that is drawn at random is drawn from a seed, so a history always runs the same. `run_history` runs one;
a failure names the call that repeats it. Hypothesis draws histories (`histories`) and shrinks failing ones.
"""

import inspect
import os
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeAlias, cast

import pytest
import redis
from hypothesis import example, settings
from hypothesis import strategies as st

from acker.errors import AckerError, StoreUnavailable
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.store.operation import Operation, Reply, Request
from acker.streams.commits import chunks
from acker.streams.staging import vectors
from tests.helpers.faults.set_backs import Moment, moment, set_back, tag

Move: TypeAlias = tuple[Any, ...]
Send: TypeAlias = Callable[[Sequence[Request]], list[Reply]]

_ASKED = int(os.environ.get("ACKER_HISTORIES", "0"))
HISTORIES = settings(max_examples=_ASKED or (60 if os.environ.get("CI") else 15), derandomize=not _ASKED)
"""So many histories of a property: always the same, unless ACKER_HISTORIES asks for so many others."""
FAULTS = ("lose", "fail", "die")
_MOST = 3_000
"""Requests after which an actor should have come to its end."""
_SHOWN = 80
"""Lines of the log that a failure shows."""
_CHUNKS, _FLIGHTS, _COPIES, _MOMENTS, _LONG = (chunks.MOST, 3, 0), (chunks.MOST_CHUNKS, 1), 100, 64, 60.0


def names_of(request: Request) -> list[str]:
    """The names of a request's script and of the scripts in its chain; the name of a plain command."""
    if request.script is None:
        return [str(request.args[0])]
    names, at = [request.script.name], 0
    while request.script.name == "chain" and at < len(request.args):
        names.append(str(request.args[at]))
        at += 3 + int(request.args[at + 2])
    return names


def scripts_of(requests: Sequence[Request]) -> list[str]:
    """The names of the scripts of requests, also within chains."""
    return [name for one in requests if one.script is not None for name in names_of(one)]


class Killed(BaseException):
    """Ends the process of an actor."""


class _Actor:
    """A process: a thread that runs only while it has the turn."""

    def __init__(self, simulator: "Simulator", name: str) -> None:
        self.name, self.simulator = name, simulator
        self.over, self.killed = False, False
        self.error: BaseException | None = None
        self.next: Sequence[str] = ()
        self._fault = ""
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ledger, self._known = simulator.world.open(name), dict[bytes, Any]()
        self._thread = threading.Thread(target=self._run, name=f"actor {name}", daemon=True)
        self._thread.start()

    def go(self, fault: str = "") -> None:
        """Gives the actor the turn, until its next request."""
        self._fault, vectors._known = fault, self._known
        self._turn.release()
        assert self._done.acquire(timeout=_LONG), f"{self.name} does not come to its next request"
        vectors._known = self.simulator.known
        if self.over:
            self._thread.join(_LONG)

    def _run(self) -> None:
        self._turn.acquire()
        self.simulator.here.actor = self
        try:
            if self._fault != "die":
                self.simulator.world.begin(self.name, self._ledger)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the simulator raises it, or the world allows it
            self.error = error
        finally:
            self.over = True
            self._done.release()

    def _wait(self) -> str:
        if not self.killed:
            self._done.release()
            self._turn.acquire()
            self.killed = self._fault == "die"
        if self.killed:
            raise Killed
        return self._fault

    def send(self, requests: Sequence[Request], send: Send) -> list[Reply]:
        """Sends requests one by one; from the first again where a reply is lost."""
        replies: list[Reply] = []
        while len(replies) < len(requests):
            request = requests[len(replies)]
            self.next = names_of(request)
            fault = self._wait()
            self.simulator.note(self.name, fault, request)
            replies += [None] if self.simulator.cluster and request.one_server else send([request])
            if fault == "lose":
                replies = []
            elif fault == "fail":
                raise StoreUnavailable("the reply is lost")
        return replies


class Simulator:
    """Runs the actors of a world by a history. log: each actor's requests, in order."""

    def __init__(self, world: "World", cluster: bool) -> None:
        self.world, self.cluster = world, cluster
        self.here = threading.local()
        self.log: list[str] = []
        self.known = vectors._known = {}
        self.losses = 0
        self._actors: dict[str, _Actor] = {}
        self._copies: list[Request] = []
        self._moments: list[tuple[Moment, Any]] = []
        self._noting = False

    def current(self) -> _Actor | None:
        """The actor whose thread this is."""
        return getattr(self.here, "actor", None)

    def note(self, name: str, fault: str, request: Request) -> None:
        """Notes a request that is about to be sent, and what may come back of it later."""
        self.log.append(f"{name:>12} {fault:<5} {' '.join(names_of(request))}")
        if request.script is None or not request.script.reads:
            if request.script is not None:
                self._copies = [*self._copies[1 - _COPIES :], request]
            if self._noting:
                self._moments = [
                    *self._moments[1 - _MOMENTS :],
                    (moment(self.world.raw), self.world.snapshot()),
                ]

    def play(self, history: Sequence[Move]) -> None:
        """Carries out moves."""
        backs = [place for place, move in enumerate(history) if move[0] in ("back", "part")]
        for place, (name, what, *more) in enumerate(history):
            self._noting = bool(backs) and place < backs[-1]
            if name == "again":
                self._repeat(what)
            elif name in ("back", "part"):
                self._set_back(what, *more)
            elif name in self.world.events:
                for _ in range(what):
                    self.log.append(f"{name:>12}")
                    getattr(self.world, name)()
            else:
                self._move(name, what)
        self._noting = False

    def calm(self) -> None:
        """Brings each actor that has begun to its end; the others do not begin any more."""
        for actor in self._actors.values():
            for _ in range(_MOST):
                if actor.over:
                    break
                actor.go()
            else:
                raise AssertionError(f"{actor.name} does not come to an end")
            self._raise(actor)

    def close(self) -> None:
        """Ends what still runs."""
        for actor in self._actors.values():
            if not actor.over:
                actor.go("die")

    def _move(self, name: str, what: int | str) -> None:
        actor = self._actors.get(name)
        if actor is None or actor.over:
            if what == "die":
                return
            actor = self._actors[name] = _Actor(self, name)
            actor.go()  # to its first request
        for _ in range(what if isinstance(what, int) else 1 if what in FAULTS else _MOST):
            if actor.over:
                break
            actor.go(str(what) if what in FAULTS else "")
            if what in actor.next:
                break
        self._raise(actor)

    def _raise(self, actor: _Actor) -> None:
        if actor.error is None:
            return
        error, actor.error = actor.error, None
        self.log.append(f"{actor.name:>12}       {type(error).__name__}: {error}")
        if not isinstance(error, self.world.allowed):
            raise error

    def _repeat(self, name: str) -> None:
        for request in self._copies:
            names = names_of(request)
            if name in names and not (self.cluster and request.one_server):
                self.log.append(f"{'again':>12}       {' '.join(names)}")
                with suppress(AckerError):
                    self.world.ledger.store.send([request])

    def _set_back(self, writes: int, chosen: int = 0) -> None:
        if not self._moments:
            return
        to, snapshot = self._moments[-min(max(1, writes), len(self._moments))]
        tags = None
        if chosen:
            both = sorted({tag(name) for name in [*self.world.raw.scan_iter(count=1000), *to]})
            tags = {one for place, one in enumerate(both) if chosen >> place % 8 & 1}
        self.log.append(f"{'back':>12} {writes} {tags or ''}")
        self.losses += 1
        self.world.lose()
        set_back(self.world.raw, to, tags)
        self.world.restore(snapshot, tags)
        if tags is None:
            del self._moments[-min(max(1, writes), len(self._moments)) :]


class World:
    """The subject of a history: its actors and events are methods of its own.

    actors: names of methods that are given a ledger; what they return may be an operation, which is run.
    events: names of methods without arguments. scripts: where actors may stop, and what comes again.
    allowed: errors with which an actor may end.
    """

    actors: ClassVar[tuple[str, ...]] = ()
    events: ClassVar[tuple[str, ...]] = ()
    scripts: ClassVar[tuple[str, ...]] = ()
    allowed: tuple[type[BaseException], ...] = (AckerError,)
    settings: ClassVar[dict[str, Any]] = {"ackers": 2}

    def __init__(self, url: str, cluster: bool = False, seed: int = 0) -> None:
        self.url, self.seed = url, seed
        self.raw = redis.Redis.from_url(url)
        self.raw.flushall()
        self.begun: Counter[str] = Counter()
        self.ledger = open_ledger(Store(url), "t", **self.settings)
        self.simulator = Simulator(self, cluster)

    def open(self, name: str) -> Ledger:
        """Returns the ledger of an actor, which begins."""
        return open_ledger(Store(self.url), "t")

    def begin(self, name: str, ledger: Ledger) -> None:
        """Runs an actor."""
        self.begun[name] += 1
        done: Any = getattr(self, name)(ledger)
        if inspect.isgenerator(done):
            ledger.run(cast("Operation[object]", done))

    def exchange(self, requests: Sequence[Request], send: Send) -> list[Reply]:
        """Sends requests of anybody to the store."""
        return send(requests)

    def lose(self) -> None:
        """The store is about to be set back."""

    def snapshot(self) -> Any:
        """A copy of what the world itself holds of the store, beside each moment of the store."""

    def restore(self, snapshot: Any, tags: Container[bytes] | None) -> None:
        """Goes back to a copy, as the store has. tags: for keys with these tags alone."""

    def close(self) -> None:
        """Lets go of the store."""
        self.raw.close()

    def check(self) -> None:
        """Fails where what has become of all is not what was promised."""
        raise NotImplementedError


def run_history(
    world: type[World], url: str, history: Sequence[Move], *,
    cluster: bool = False, seed: int = 0, most: int | None = None,
) -> World:  # fmt: skip
    """Runs a history on a new world, and checks it; returns the world. A failure notes how to repeat it.

    cluster: chains of scripts are refused, as by a cluster. most: scripts of a chunk, by default by the seed.
    """
    most = _CHUNKS[seed % len(_CHUNKS)] if most is None else most
    with _seeded(seed, most), pytest.MonkeyPatch.context() as patch:
        simulated = world(url, cluster, seed)
        simulator, send = simulated.simulator, Store.send

        def in_turn(store: Store, requests: Sequence[Request]) -> list[Reply]:
            actor, forward = simulator.current(), partial(simulated.exchange, send=partial(send, store))
            return forward(requests) if actor is None else actor.send(requests, forward)

        patch.setattr(Store, "send", in_turn)
        try:
            simulator.play(history)
            simulator.calm()
            simulated.check()
        except BaseException as error:
            how = f"{list(history)}, cluster={cluster}, seed={seed}, most={most}"
            call = f"run_history({world.__name__}, url, {how})"
            error.add_note("\n".join([call, *simulator.log[-_SHOWN:]]))
            raise
        finally:
            simulator.close()
            simulated.close()
    return simulated


@contextmanager
def _seeded(seed: int, most: int) -> Iterator[None]:
    """Draws all names and ids from a seed. most: scripts of a chunk; by the seed, a flight has one chunk."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MOST", most)
        patch.setattr(chunks, "MOST_CHUNKS", _FLIGHTS[seed % len(_FLIGHTS)])
        patch.setattr(secrets, "randbits", chance.getrandbits)
        patch.setattr(secrets, "randbelow", chance.randrange)
        patch.setattr(secrets, "choice", chance.choice)
        patch.setattr(secrets, "token_bytes", chance.randbytes)
        patch.setattr(secrets, "token_hex", lambda count: chance.randbytes(count).hex())
        yield


def histories(world: type[World], *, backs: Sequence[str] = ()) -> "st.SearchStrategy[list[Move]]":
    """Histories of a world. backs: "back", "part", or none."""
    actors = st.sampled_from(world.actors)
    moves: list[st.SearchStrategy[Any]] = [
        st.tuples(actors, st.integers(1, 9)),
        st.tuples(actors, st.integers(1, 60)),
        st.tuples(actors, st.sampled_from(world.scripts)),
        st.tuples(actors, st.sampled_from(FAULTS)),
        st.tuples(st.just("again"), st.sampled_from(world.scripts)),
    ]
    if world.events:
        moves.append(st.tuples(st.sampled_from(world.events), st.integers(1, 3)))
    if "back" in backs:
        moves += [st.tuples(st.just("back"), st.integers(1, most)) for most in (5, 40)]
    if "part" in backs:
        moves += [st.tuples(st.just("part"), st.integers(1, most), st.integers(1, 255)) for most in (5, 40)]
    return st.lists(st.one_of(moves), min_size=1, max_size=16)


def examples(*known: list[Move], **rest: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Histories that a property runs each time: each found a fault once."""

    def add(prop: Callable[..., None]) -> Callable[..., None]:
        for history in known:
            prop = example(history=history, **rest)(prop)
        return prop

    return add
