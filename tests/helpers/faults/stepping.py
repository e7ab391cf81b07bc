"""Operations that are run step by step, and calls that are stopped, so that others come in between."""

import contextlib
import threading
from collections.abc import Callable, Sequence

import pytest

from acker.errors import AckerError, StoreUnavailable
from acker.ledger.client import Ledger
from acker.store.client import Store
from acker.store.operation import Operation, Reply, Request
from tests.helpers.faults.simulator import scripts_of


class Stepping:
    """An operation that is run step by step, one exchange each. ended: whether it has come to its end."""

    def __init__(self, ledger: Ledger, operation: Operation[object]) -> None:
        self._ledger, self._operation, self.ended = ledger, operation, False
        self._asked: Sequence[Request] = next(operation)

    def go_on(self, exchanges: int = 1_000) -> None:
        """Goes on, to the end or for so many exchanges."""
        try:
            for _ in range(exchanges):
                self._asked = self._operation.send(self._ledger.store.send(self._asked))
        except StopIteration:
            self.ended = True

    def until(self, script: str) -> None:
        """Goes on until it would send a script of a name."""
        while script not in scripts_of(self._asked):
            self._asked = self._operation.send(self._ledger.store.send(self._asked))

    def lose_reply(self) -> None:
        """Sends what it would send next, and stays as it is."""
        self._ledger.store.send(self._asked)


def before_script(
    monkeypatch: pytest.MonkeyPatch, name: str, instead: Callable[[], object], act: Callable[[], object]
) -> None:
    """Does something, and something else just before its first script of a name takes effect.

    Requests of the same batch before that script have taken effect by then.
    """
    send, left, own = Store.send, [instead], threading.get_ident()

    def stopped(store: Store, requests: Sequence[Request]) -> list[Reply]:
        place = next((n for n, one in enumerate(requests) if name in scripts_of([one])), None)
        if threading.get_ident() != own or place is None or not left:
            return send(store, requests)
        before = send(store, requests[:place])
        left.pop()()
        return [*before, *send(store, requests[place:])]

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", stopped)
        with contextlib.suppress(AckerError):
            act()
    assert not left


def lose(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object], *, reply: bool = False
) -> None:
    """Does something whose exchanges with a script of a name do not reach the store, so that it raises.

    reply: they do, and only the reply is lost.
    """
    send = Store.send

    def cut(store: Store, requests: Sequence[Request]) -> list[Reply]:
        lost = name in scripts_of(requests)
        replies = [] if lost and not reply else send(store, requests)
        if lost:
            raise StoreUnavailable("the connection was cut")
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", cut)
        with pytest.raises(StoreUnavailable, match="was cut"):
            act()


def before_exchange(
    monkeypatch: pytest.MonkeyPatch, number: int, instead: Callable[[], object], act: Callable[[], object]
) -> bool:
    """Does something, and something else just before an exchange of it, from 0; False if it has fewer."""
    send, left, own = Store.send, number, threading.get_ident()

    def stopped(store: Store, requests: Sequence[Request]) -> list[Reply]:
        nonlocal left
        if threading.get_ident() == own:
            left -= 1
            if left == -1:
                instead()
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", stopped)
        act()
    return left < 0
