"""Bells: wake threads that wait for new entries of streams in the store."""

import logging
import threading
import time
from collections.abc import Sequence

from acker.store import loops
from acker.store.client import Store
from acker.store.loops import Pace
from acker.store.operation import Operation, Reply, Request, Word, command

_BLOCK = 0.5
_POLL = 0.02
_FEW = 32
"""Entries of a stream that are read at a time."""
_ASK = 0.5
_log = logging.getLogger(__name__)


class Bell:
    """Listens to streams of the store, until `stop` is set. Threads that missed it poll now and then, too.

    On one server, one connection waits for all streams; a cluster is polled fifty times a second.
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
        """Returns an event that is set by new entries of one of the streams, and at the end. Before `run`."""
        event = threading.Event()
        self._events.append(event)
        for key in keys:
            self._listeners.setdefault(key, []).append(event)
        return event

    def run(self) -> None:
        """Rings until `stop` is set; `end` ends it at once for all listeners."""
        self._last = dict.fromkeys(self._listeners, b"0-0")
        if self._last:
            pace = Pace(_log, "workers are not woken by new rows, and poll", _BLOCK, _BLOCK)
            loops.run(self._stop, lambda: self._store.run(self._ring()), pace, first=0)

    def end(self) -> None:
        """Sets `stop`, and wakes all listeners."""
        self._stop.set()
        for event in self._events:
            event.set()

    def _ring(self) -> Operation[float]:
        """Wakes the listeners of streams with new entries; returns seconds until the next look."""
        names = list(self._last)
        if self._store.cluster:
            self._wake(self._newest(names, (yield [_newest(key) for key in names])))
            return _POLL
        # After the blocking reads, the same flight asks for the newest entries of streams with more entries
        # than were read; and now and then of all, because the store may have been rolled back.
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
        return 0

    def _newest(self, names: Sequence[bytes], newest: Sequence[Reply]) -> list[bytes]:
        """Records the newest entries of streams; returns the streams that had none recorded."""
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
