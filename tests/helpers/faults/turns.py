"""Actors that take turns at a store, one exchange each, as chance decides, while the store is set back.

Each actor works in a thread of its own, and waits at every exchange until it has its turn.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Mapping, Sequence

import redis

from acker.errors import AckerError
from acker.store.client import Store
from acker.store.operation import Reply, Request
from tests.helpers.faults.simulator import Moment, moment, set_back, tag

_Send = Callable[[Store, Sequence[Request]], list[Reply]]
_LONG = 60.0


class _Over(BaseException):
    """Ends an actor whose time is over."""


class Turns:
    """Runs actors. After `turns` of them nothing goes wrong any more (`calm`), and each comes to its end.

    A reply may be lost, so that the same is sent again a turn later. A call of a script may come once more,
    any time later. spans: so many turns are lost at a time. whole: of the whole store; False: of some of its
    tags, as where they lie on nodes of a cluster. losses: how often the store was set back.
    """

    def __init__(
        self, seed: int, raw: "redis.Redis", turns: int, spans: Sequence[int], *, whole: bool = True
    ) -> None:
        self.chance = random.Random(seed)
        self.calm = False
        self.losses = 0
        self._raw = raw
        self._turns = turns
        self._spans = spans
        self._whole = whole
        self._copies: list[tuple[Store, Request]] = []
        self._taken = 0
        self._changed = threading.Condition()
        self._waiting: set[str] = set()
        self._next: str | None = None
        self._living: set[str] = set()
        self._errors: list[BaseException] = []
        self._own = threading.local()
        self._moment: tuple[int, Moment] | None = None

    def run(self, actors: Mapping[str, Callable[[], object]], rounds: int) -> None:
        """Runs actors, each again and again, and so many times more when it is calm. Raises what they do."""
        send = Store.send

        def in_turn(store: Store, requests: Sequence[Request]) -> list[Reply]:
            if not self.wait():
                return send(store, requests)
            found = send(store, requests)
            if not self.calm and self.chance.random() < 0.03:
                self.wait()
                found = send(store, requests)
            self._deliver_late(send, store, requests)
            return found

        self._living = set(actors)
        Store.send = in_turn  # type: ignore[method-assign, assignment]
        try:
            threads = [
                threading.Thread(target=self._act, args=(name, act, rounds), daemon=True)
                for name, act in actors.items()
            ]
            for thread in threads:
                thread.start()
            while self._give_a_turn():
                pass
            for thread in threads:
                thread.join(_LONG)
        finally:
            Store.send = send  # type: ignore[method-assign]
        if self._errors:
            raise self._errors[0]

    def _deliver_late(self, send: _Send, store: Store, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.script is not None and not request.script.reads and self.chance.random() < 0.1:
                self._copies.append((store, request))
        if self._copies and self.chance.random() < 0.05:
            late = self._copies.pop(self.chance.randrange(len(self._copies)))
            with contextlib.suppress(AckerError):
                send(late[0], [late[1]])

    def wait(self) -> bool:
        """Has an actor wait for its turn; False for who is none."""
        name = getattr(self._own, "name", None)
        if name is None:
            return False
        with self._changed:
            self._waiting.add(name)
            self._changed.notify_all()
            while self._next != name:
                if self._errors or not self._changed.wait(_LONG):
                    raise _Over
            self._next = None
            self._waiting.discard(name)
        return True

    def _act(self, name: str, act: Callable[[], object], rounds: int) -> None:
        self._own.name = name
        try:
            while rounds:
                self.wait()
                rounds -= self.calm
                act()
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            self._errors.append(error)
        finally:
            with self._changed:
                self._living.discard(name)
                self._changed.notify_all()

    def _give_a_turn(self) -> bool:
        with self._changed:
            while self._living and (self._next is not None or self._living - self._waiting):
                if not self._changed.wait(_LONG):
                    raise TimeoutError(f"of {self._living} only {self._waiting} wait for their turn")
            if not self._living:
                return False
            self._taken += 1
            self.calm = self.calm or self._taken > self._turns
            if not self.calm:
                self._lose()
            self._next = self.chance.choice(sorted(self._waiting))
            self._changed.notify_all()
        return True

    def _lose(self) -> None:
        if self._moment is None:
            if self.chance.random() < 0.025:
                self._moment = self._taken + self.chance.choice(self._spans), moment(self._raw)
        elif self._taken >= self._moment[0]:
            tags = sorted(set(map(tag, [*self._raw.scan_iter(count=1000), *self._moment[1]])))
            some = None if self._whole else [one for one in tags if self.chance.random() < 0.5]
            set_back(self._raw, self._moment[1], some)
            self._moment, self.losses = None, self.losses + 1
