"""Outboxes at the ends of a process: a forked child begins with empty ones, what is left is sent at exit."""

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
    """An outbox, as the end of a process sees it."""

    @property
    def unsent(self) -> int:
        """How many messages the store has not answered for."""

    def finish(self) -> None:
        """Sends what is left."""

    def after_fork(self) -> None:
        """Makes it empty."""


class Forgetful(Protocol):
    """An object with state that a forked child must not share with its parent."""

    def forget(self) -> None:
        """Drops everything: it is the parent's."""


_outboxes: "weakref.WeakSet[Ending]" = weakref.WeakSet()
_ends: set[int] = set()


def add(outbox: Ending) -> None:
    """Has an outbox be empty in forked children, without keeping it alive."""
    _outboxes.add(outbox)


def see_to_the_end() -> None:
    """Has this process send what is left when it ends, also where it is a child of `multiprocessing`.

    A forked one runs no atexit, but the finalizers of multiprocessing, which it has to register itself.
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


def _after_fork() -> None:
    for outbox in list(_outboxes):
        outbox.after_fork()


os.register_at_fork(after_in_child=_after_fork)
