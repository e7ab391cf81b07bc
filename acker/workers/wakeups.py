"""Bells: threads that wait for something to come to streams of the store are woken when it has come."""

import logging
import threading
import time
from collections.abc import Sequence

from acker.errors import AckerError
from acker.store.client import Store
from acker.store.operation import Operation, Reply, Request, Word, command

_BLOCK = 0.5
_POLL = 0.02
_FEW = 32
"""Entries of a stream that are read at a time."""
_ASK = 0.5
_log = logging.getLogger(__name__)


class Bell:
    """Listens to streams of the store, until `stop` is set. A thread that missed it looks now and then, too.

    One connection waits for all, where the store is one server; a cluster is asked fifty times a second.
    """

    def __init__(self, store: Store, stop: threading.Event) -> None:
        self._store = store
        self._stop = stop
        self._last: dict[bytes, bytes] = {}
        self._behind: Sequence[bytes] = ()
        self._asked = -_ASK
        self._listeners: dict[bytes, list[threading.Event]] = {}
        self._events: list[threading.Event] = []

    def listen(self, keys: Sequence[bytes]) -> threading.Event:
        """An event that is set when something comes to one of the streams, and at the end. Before `run`."""
        event = threading.Event()
        self._events.append(event)
        for key in keys:
            self._listeners.setdefault(key, []).append(event)
        return event

    def run(self) -> None:
        """Rings until `stop` is set; `end` makes it stop at once for those who listen."""
        self._last = dict.fromkeys(self._listeners, b"0-0")
        while self._last and not self._stop.is_set():
            try:
                self._store.run(self._ring())
            except AckerError as error:
                _log.debug("a bell waits: %s", error)
                self._stop.wait(_BLOCK)

    def end(self) -> None:
        """Sets `stop`, and wakes all who listen."""
        self._stop.set()
        for event in self._events:
            event.set()

    def _ring(self) -> Operation[None]:
        names = list(self._last)
        if self._store.cluster:
            self._stop.wait(_POLL)
            self._wake(self._newest(names, (yield [_newest(key) for key in names])))
            return
        # Behind what waits it is asked, in the same flight, how far streams have come of which more has come
        # than was read; now and then all of them, for the store may have been set back.
        asked = self._behind
        if time.monotonic() - self._asked >= _ASK:
            self._asked, asked = time.monotonic(), names
        block = round(min(_BLOCK, self._store.timeout / 4) * 1000)
        words: list[Word] = ["XREAD", "COUNT", _FEW, "BLOCK", block, "STREAMS", *names, *self._last.values()]
        come, *newest = yield [Request(names[0], words), *map(_newest, asked)]
        rung, self._behind = list[bytes](), []
        for key, entries in come or ():
            self._last[key] = entries[-1][0]
            rung.append(key)
            if len(entries) == _FEW and key not in asked:
                self._behind.append(key)
        self._wake([*rung, *self._newest(asked, newest)])

    def _newest(self, names: Sequence[bytes], newest: Sequence[Reply]) -> list[bytes]:
        """Notes up to where streams have come; returns which of them were not known to be there."""
        rung = []
        for key, entries in zip(names, newest, strict=True):
            if entries and entries[0][0] != self._last[key]:
                self._last[key] = entries[0][0]
                rung.append(key)
        return rung

    def _wake(self, rung: Sequence[bytes]) -> None:
        for key in rung:
            for event in self._listeners[key]:
                event.set()


def _newest(key: bytes) -> Request:
    return command("XREVRANGE", key, "+", "-", "COUNT", 1)
