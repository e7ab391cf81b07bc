"""Processes that end after so many requests: the store has these, and no other."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from acker.store.client import Store
from acker.store.operation import Reply, Request


class Killed(BaseException):
    """Ends a process."""


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
