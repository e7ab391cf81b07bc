"""Processes that end after so many requests: the store has these, and no other."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import pytest

from acker.errors import AckerError
from acker.store.client import Store
from acker.store.operation import Reply, Request
from tests.helpers.faults.simulator import Killed, scripts_of


@contextmanager
def killed_after(requests: int) -> Iterator[None]:
    """Has this thread be killed when it has sent so many requests, before it has the last reply.

    Others go on: a thread of a test before, which waits for answers a little longer, is no part of it.
    """
    send, left, mine = Store.send, requests, threading.get_ident()

    def cut(store: Store, asked: Sequence[Request]) -> list[Reply]:
        nonlocal left
        if threading.get_ident() != mine:
            return send(store, asked)
        if len(asked) < left:
            left -= len(asked)
            return send(store, asked)
        if left:
            send(store, asked[:left])
        left = 0
        raise Killed

    Store.send = cut  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Store.send = send  # type: ignore[method-assign]


def before_script(
    monkeypatch: pytest.MonkeyPatch, name: str, instead: Callable[[], object], act: Callable[[], object]
) -> None:
    """Does something, and something else just before its first script of a name goes to the store."""
    send, left, own = Store.send, [instead], threading.get_ident()

    def stopped(store: Store, requests: Sequence[Request]) -> list[Reply]:
        if threading.get_ident() == own and name in scripts_of(requests):
            while left:
                left.pop()()
        return send(store, requests)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "send", stopped)
        with contextlib.suppress(AckerError):
            act()
    assert not left


def after_each_request(begin: Callable[[int], Callable[[], object]]) -> Iterator[int]:
    """Begins anew for each number of requests, and does what that returns until it is killed after so many.

    Yields each number when it was killed; ends with the first that was not reached.
    """
    for requests in count(1):
        act = begin(requests)
        try:
            with killed_after(requests):
                act()
        except Killed:
            yield requests
        else:
            return
