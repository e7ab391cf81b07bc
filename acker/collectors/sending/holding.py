"""Holding: the tuples that the bolts of this process have taken, reported where they hold them for long.

A bolt takes a tuple when it begins to process it, or emits a record anchored to it; a bolt that only acks
tells nothing before. The outbox's thread reports tuples that were held for some seconds, so the store can
name the step of an expired tree. A report is help for people: what fails here is logged, and no more.

Terms: a tree is all that comes of one record.
"""

import logging
import math
import os
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from acker.collectors.tuples import Taken, Tuple
from acker.errors import AckerError, StoreUnavailable
from acker.ledger.client import Ledger
from acker.ledger.steps import held
from acker.ledger.steps.held import Process
from acker.ledger.steps.registration import program_name

MOST = 4_096
"""Most tuples that are noted in memory."""
_PERIOD = 10.0
"""Seconds between two reports, at most, and for which a tuple is held before it is reported."""
_SOON = 1.0
"""Seconds after which an ended tuple is no longer reported."""
_QUIET = 600.0
"""Seconds without a report after the store has refused one."""
_TEXT = 200
_OLDEST = (1 << 32) - 1
_log = logging.getLogger("acker")


class Reporter(Protocol):
    """The outbox, as its reports see it."""

    ledger: Ledger
    lock: threading.RLock
    taken: Taken

    def wake_at(self, due: float) -> None:
        """Makes the outbox's thread look for a due report at a time; with the lock."""


class _Kept(NamedTuple):
    """A held tuple. It is kept alive, so that no other object gets its number."""

    tuple: Tuple
    step: str
    since: float


class Holding:
    """The tuples that bolts hold. Its methods are called with the outbox's lock, except `report`.

    Args:
        outbox: The outbox.
    """

    def __init__(self, outbox: Reporter) -> None:
        self._outbox = outbox
        self._kept: dict[int, _Kept] = {}
        self._full_until = 0.0
        self._passed_over = -math.inf
        self._name = f"{socket.gethostname()[:_TEXT]} {os.getpid()} {secrets.token_hex(8)}"
        self._number = 0
        self._reported = self._refused = False
        self.due: float | None = None
        """The time of the next report, on the monotonic clock like all times here."""

    def take(self, tuple: Tuple, step: str) -> None:  # noqa: A002 - this project's word
        """Notes that a step has taken a tuple."""
        place = id(tuple)
        if place in self._kept or not tuple.anchors or self._outbox.ledger.off:
            return
        now = time.monotonic()
        if len(self._kept) >= MOST and not self._has_room(now):
            self._passed_over = now
            return
        self._kept[place] = _Kept(tuple, step, now)
        if self.due is None:
            self.due = now + self._period
            self.wake()

    def wake(self) -> None:
        """Wakes the outbox's thread at the due time. Where none can start, nothing is reported."""
        if self.due is not None:
            with suppress(RuntimeError):
                self._outbox.wake_at(self.due)

    def drop(self, tuple: Tuple) -> None:  # noqa: A002 - as above
        """Notes that a tuple was acked or failed. If it was reported, the next report comes soon."""
        kept = self._kept.pop(id(tuple), None)
        if kept is not None and self._reported and self.due is not None and not self._refused:
            now = time.monotonic()
            if now - kept.since >= self._period and self.due > now + _SOON:
                self.due = now + _SOON
                self.wake()

    @property
    def _period(self) -> float:
        """Seconds between reports: the tuples of a tree are reported before it can expire."""
        return min(_PERIOD, self._outbox.ledger.config.message_timeout / 4)

    def _old(self, now: float) -> float:
        """The time before which a tuple was taken whose tree is over, unless its timeout was reset."""
        return now - 3 * self._outbox.ledger.config.message_timeout

    def _has_room(self, now: float) -> bool:
        """Makes room. Where that was of little use, the tuples of the next seconds are not noted."""
        if now >= self._full_until:
            self._forget(self._old(now))
            if len(self._kept) > MOST // 2:
                self._full_until = now + self._period
        return len(self._kept) < MOST

    def _forget(self, old: float = 0.0) -> None:
        """Forgets ended tuples, and those from before a time: a bolt may have dropped them."""
        taken = self._outbox.taken
        self._kept = {
            place: kept
            for place, kept in self._kept.items()
            if not kept.tuple.ended and kept.since >= old and kept.tuple.first_edge not in taken
        }

    def _due_report(self, *, ending: bool) -> tuple[int, Process, npt.NDArray[np.void]] | None:
        """The report that is due, with its number; None if there is none."""
        now = time.monotonic()
        if not (ending and self._reported) and (self.due is None or self.due > now):
            return None
        self._forget()
        passed_over = self._passed_over >= self._old(now)
        holds = bool(self._kept) or passed_over
        self.due = now + (_QUIET if self._refused else self._period) if holds else None
        kept = [one for one in self._kept.values() if now - one.since >= self._period]
        kept.sort(key=lambda one: one.since < self._old(now))  # the trees of these may be over
        steps: dict[str, int] = {}
        edges: list[tuple[int, int, int, int]] = []
        named = 0
        for tuple_, step, since in kept:
            room = held.MOST - len(edges)
            if room and (step in steps or len(steps) < held.MOST_NAMED):
                number, age = steps.setdefault(step, len(steps)), min(int((now - since) * 1000), _OLDEST)
                edges += [(anchor, own, age, number) for anchor, own in islice(tuple_.edges.items(), room)]
                named += len(tuple_.anchors) <= room
        more = len(kept) - named
        if not kept and not passed_over and not self._reported:
            return None
        self._reported, self._number = bool(kept) or passed_over, self._number + 1
        program = program_name(sys.argv[0] if sys.argv else "")[:_TEXT]
        process = Process(socket.gethostname()[:_TEXT], program, os.getpid(), tuple(steps), more, passed_over)
        return self._number, process, np.array(edges, held.Edges)

    def report(self, *, ending: bool = False) -> None:
        """Sends the report that is due; an error is logged. For the outbox's thread alone, without the lock.

        Args:
            ending: True if no other report follows.
        """
        outbox = self._outbox
        with outbox.lock:
            report = self._due_report(ending=ending)
        if report is not None:
            try:
                outbox.ledger.run(held.note(outbox.ledger.core, self._name, *report))
                self._refused = False
            except StoreUnavailable:  # the next report says the same, also that nothing is held any more
                with outbox.lock:
                    self._reported = True
                    self.due = self.due or time.monotonic() + self._period
            except AckerError as error:
                if not self._refused:
                    name = outbox.ledger.config.name
                    _log.error("held tuples of topology %r are not reported: %s", name, error)
                self._refused = True
        with outbox.lock:
            self.wake()
