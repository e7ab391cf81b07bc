"""Outboxes and external rows at the end of a process: a forked child has none, and an exit sends the rest."""

import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import weakref
from typing import Protocol

from acker.errors import AckerError

log = logging.getLogger("acker")


class Ending(Protocol):
    """The part of an outbox that the end of a process uses."""

    @property
    def unsent(self) -> int:
        """Number of messages that the store has not answered."""

    def finish(self) -> None:
        """Sends the rest."""

    def after_fork(self) -> None:
        """Empties the outbox."""


class ForkAware(Protocol):
    """An object with state that a forked child must not share with its parent."""

    def forget(self) -> None:
        """Drops all state, which belongs to the parent."""


class Lingering(ForkAware, Protocol):
    """An exchange, whose rows may linger."""

    def finish(self) -> None:
        """Sends rows that linger."""


_outboxes: "weakref.WeakSet[Ending]" = weakref.WeakSet()
_exchanges: "weakref.WeakSet[Lingering]" = weakref.WeakSet()
_ends: set[int] = set()


def add(outbox: Ending) -> None:
    """Makes an outbox empty in forked children, without keeping it alive."""
    _outboxes.add(outbox)


def add_exchange(exchange: Lingering) -> None:
    """Makes an exchange forget its rows in forked children, behind all outboxes, without keeping it alive."""
    _exchanges.add(exchange)


def see_to_the_end() -> None:
    """Makes this process send the rest at its end, also in a child of `multiprocessing`.

    A forked child runs no atexit functions, only the finalizers of multiprocessing, which it must register.
    """
    if os.getpid() not in _ends and multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _at_exit, exitpriority=0)
    _ends.add(os.getpid())


@atexit.register
def _at_exit() -> None:
    for outbox in list(_outboxes):
        if outbox.unsent:
            try:
                outbox.finish()
            except AckerError as error:
                log.error("acker: %d messages are lost at exit: %s", outbox.unsent, error)
    for exchange in list(_exchanges):
        try:
            exchange.finish()
        except AckerError as error:
            log.error("acker: rows of external streams that linger are not sent at exit: %s", error)


def _after_fork() -> None:
    for outbox in list(_outboxes):
        outbox.after_fork()
    for exchange in list(_exchanges):
        exchange.forget()


os.register_at_fork(after_in_child=_after_fork)
