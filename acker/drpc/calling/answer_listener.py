"""The answer listener: one thread of a process waits for the answers to its pending calls of a function.

It ends after a while without callers. If the store is unavailable, the caller's own timeout ends a call.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from acker.drpc.calling.callbacks import Answer
from acker.drpc.calls import Seen, Status, ended, overdue
from acker.drpc.registry import Description
from acker.errors import DRPCFailed, DRPCTimeout, UnreadableRecord
from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import log_error
from acker.store import function_keys, loops
from acker.store.loops import Pace
from acker.store.operation import Request, Word, command

IDLE = 5.0
"""Seconds after which an idle thread ends."""
_BLOCK = 0.5
_LOOK = 1.0
_LATE = 1.0
"""Seconds after a call's deadline when its caller ends it, because no worker has."""
_GRACE = 2.0
_PAGE = 500
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Call:
    """A call. timeout: seconds. future: its result, or the error. begun: set when it is written.

    added: True once the listener waits for its answer.
    """

    request: str
    args: str
    timeout: float
    future: Answer = field(default_factory=Answer)
    begun: Answer = field(default_factory=Answer)
    added: bool = False


class Waiting:
    """The pending calls of a process to a function. function, ledger: the present ones."""

    def __init__(self, function: Callable[[], Description], ledger: Callable[[], Ledger]) -> None:
        self._function = function
        self._name = function().name
        self._ledger = ledger
        self._own = function_keys.Function(ledger().config.name, self._name)
        self._lock = threading.RLock()  # reentrant: a signal handler may ask, too
        self._pending: dict[str, list[tuple[float, Answer]]] = {}
        self._listener: threading.Thread | None = None
        self._last = b""
        """The entry of the answers that was read last; b"" for none."""

    def add(self, calls: Sequence[Call]) -> None:
        """Starts to listen for the answers to calls."""
        with self._lock:
            for call in calls:
                until = time.monotonic() + call.timeout + _GRACE
                self._pending.setdefault(call.request, []).append((until, call.future))
                call.added = True
            if self._listener is None:
                thread = threading.Thread(target=self._listen, daemon=True)
                thread.start()
                self._listener = thread

    def _listen(self) -> None:
        """Takes answers until no caller has waited for a while.

        A thread that an interrupt has left behind at its start is not the listener: it ends at once.
        """
        self._last = b""
        over, polled = threading.Event(), time.monotonic()
        saw_to = wanted_at = polled

        def step() -> float:
            nonlocal polled, saw_to, wanted_at
            now = time.monotonic()
            with self._lock:
                if self._listener is threading.current_thread() and not self._pending:
                    saw_to = now
                    if now - wanted_at >= IDLE:
                        self._listener = None
                else:
                    wanted_at = now
                if self._listener is not threading.current_thread():
                    over.set()
                    return 0
            try:
                if time.monotonic() - saw_to >= _LATE and self._overdue():
                    saw_to = time.monotonic()
                    self._ledger().run(overdue(self._ledger().core, self._function()))
                wanted = self._answered()
                if time.monotonic() - polled >= _LOOK:  # some may have been missed
                    polled, wanted = time.monotonic(), list(self._pending)
                self._read(wanted)
            finally:
                self._expire()
            return 0

        pace = Pace(_log, f"answers of function {self._name} wait", _BLOCK, _BLOCK)
        loops.run(over, step, pace, first=0)

    def _read(self, requests: Sequence[str]) -> None:
        """Delivers the stored answers to requests."""
        for first in range(0, len(requests), _PAGE):
            part = requests[first : first + _PAGE]
            replies = self._ledger().store.send([command("GET", self._own.answer(one)) for one in part])
            for request, found in zip(part, replies, strict=True):
                if found is not None:
                    self.tell(request, found)

    def _overdue(self) -> bool:
        """Return True if the deadline of a call passed a while ago, and nobody has ended it."""
        by = time.monotonic() + _GRACE - _LATE
        with self._lock:
            return any(until < by for waiting in self._pending.values() for until, _ in waiting)

    def _answered(self) -> list[str]:
        """Delivers short answers to our requests, and returns the requests with others; waits for the first.

        At first all of them may have been answered before it listened.
        """
        if not self._last:
            [newest] = self._ledger().store.send(
                [command("XREVRANGE", self._own.answers, "+", "-", "COUNT", 1)]
            )
            self._last = newest[0][0] if newest else b"0-0"
            return list(self._pending)
        block = round(min(_BLOCK, self._ledger().store.timeout / 4) * 1000)
        words: list[Word] = [
            "XREAD",
            "COUNT",
            _PAGE,
            "BLOCK",
            block,
            "STREAMS",
            self._own.answers,
            self._last,
        ]
        [reply] = self._ledger().store.send([Request(self._own.answers, words)])
        entries = reply[0][1] if reply else []
        if entries:
            self._last = entries[-1][0]
        wanted = list[str]()
        for _, fields in entries:
            name = fields[1].decode("utf-8", "replace")
            if name in self._pending and len(fields) > 3:
                self.tell(name, fields[3])  # it is short: it stands there, too
            elif name in self._pending:
                wanted.append(name)
        return wanted

    def tell(self, request: str, answer: bytes) -> None:
        """Delivers a stored answer to the callers of a request."""
        self.end(request, result_of(self._name, ended(answer)))

    def end(self, request: str, result: object) -> None:
        """Delivers a result, or an error, to the callers of a request."""
        with self._lock:
            waiting = self._pending.pop(request, [])
        for _, future in waiting:
            _give(future, result)

    def fail(self, call: Call, error: Exception) -> None:
        """Delivers an error to a call that was not begun. Other callers of its request still wait."""
        with self._lock:
            waiting = self._pending.pop(call.request, [])
            if others := [one for one in waiting if one[1] is not call.future]:
                self._pending[call.request] = others
        if len(others) < len(waiting) or not call.added:  # otherwise it has an answer
            _give(call.future, error)

    def _expire(self) -> None:
        """Ends calls by the caller's own clock: the store was unavailable, or has forgotten them."""
        now, over = time.monotonic(), list[Answer]()
        with self._lock:
            for request, waiting in list(self._pending.items()):
                over += [future for until, future in waiting if until < now]
                self._pending[request] = [one for one in waiting if one[0] >= now]
                if not self._pending[request]:
                    del self._pending[request]
        said = f"function {self._name!r} did not answer in time: the outcome is unknown"
        for future in over:
            _give(future, DRPCTimeout(said))


def _give(future: Answer, result: object) -> None:
    try:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
    except (RuntimeError, InvalidStateError) as error:  # another thread has set its result
        log_error(_log, error, "an answer cannot be given: its future has been given another one")


def result_of(function: str, call: Seen) -> Any:
    """Returns the result of a call, or the error that explains its absence."""
    if call.status is Status.ANSWERED:
        try:
            return json.loads(call.text)
        except (ValueError, RecursionError) as error:
            return UnreadableRecord(f"the result of function {function!r} cannot be read: {error}")
    if call.status is Status.TIMED_OUT:
        return DRPCTimeout(f"function {function!r} did not answer in time: {call.text}")
    return DRPCFailed(call.text, ", ".join(call.steps))
