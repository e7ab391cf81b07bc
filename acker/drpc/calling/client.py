"""Callers of functions: they begin calls, and wait for the answers.

For each function a process has one thread that writes calls, many in one commit, and one thread that waits
for answers. Both end when they are idle.

Terms: a group is requests of a line that were tracked together.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import threading
import weakref
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import Any

from acker.drpc import registry
from acker.drpc.calling import callbacks
from acker.drpc.calling.answer_listener import IDLE, Call
from acker.drpc.calling.call_writer import CallWriter
from acker.drpc.calling.callbacks import Answer
from acker.drpc.linear_drpc import MOST_TIMEOUT
from acker.drpc.out import as_json
from acker.drpc.registry import Description
from acker.errors import (
    AckerError,
    DRPCFull,
    UnknownFunction,
    ValidationError,
    shown,
)
from acker.ledger import ids
from acker.ledger.client import Ledger
from acker.ledger.settings.settings import check_number
from acker.workers import row_columns

_TOGETHER = 1_024


class Client(CallWriter):
    """Calls a function of a topology, from any thread.

    It can be pickled, and a forked child waits for its own calls only.

    Args:
        ledger: The ledger of the topology.
        name: The name of the function.

    Raises:
        UnknownFunction: The topology has no such function.
        ValidationError: The name is invalid.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        function = ledger.run(registry.find(name))
        if function.topology != ledger.config.name:
            raise UnknownFunction(
                f"function {name!r} is of topology {function.topology!r}, not of {ledger.config.name!r}"
            )
        super().__init__(ledger, function)
        self._begin_anew()

    def _begin_anew(self) -> None:
        row_columns.load_pandas()
        super()._begin_anew()
        self._lock = threading.RLock()  # reentrant: a signal handler may call, too
        self._asked: list[Call] = []
        self._come = threading.Condition(self._lock)
        self._sending = False
        _clients.add(self)

    def __getstate__(self) -> tuple[Ledger, Description]:
        return self.ledger, self.function

    def __setstate__(self, state: tuple[Ledger, Description]) -> None:
        self.ledger, self.function = state
        self._begin_anew()

    def execute(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Any:
        """Calls the function, and waits for the result.

        Args:
            args: A value of JSON, of at most 1 MiB.
            timeout: Seconds, 0.01 to 86,400; by default the function's.
            key: A name of the request. Calls of the same name are worked out once; the answer is kept for 10
                minutes.

        Returns:
            The result.

        Raises:
            DRPCFailed: The request failed; names the step and the reason.
            DRPCTimeout: There was no answer in time.
            DRPCFull: The function has `max_pending` calls without answer.
            UnknownFunction: The function was removed.
            ValidationError: An argument is invalid.
            StoreUnavailable: It is unknown if the call began. A new call with its key is worked out once.
        """
        return self.submit(args, timeout=timeout, key=key).result()

    async def aexecute(
        self,
        args: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the timeout of the request, not of the wait
        key: str | None = None,
    ) -> Any:
        """Calls the function for an event loop, as `execute` does. A cancelled call goes on without a caller.

        Args:
            args: See `execute`.
            timeout: See `execute`.
            key: See `execute`.

        Returns:
            The result.
        """
        future, loop, done = (
            self.submit(args, timeout=timeout, key=key),
            asyncio.get_running_loop(),
            asyncio.Event(),
        )

        def ring(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        future.ring(ring)
        await done.wait()
        return future.result()

    def execute_many(
        self, args: Iterable[object], *, timeout: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Calls the function many times, in groups of up to 1,024, and waits for all results.

        A group goes through the steps together, which is far cheaper, and as slow as its slowest call. At
        most `max_pending` calls are under way; the others wait.

        Args:
            args: Values of JSON, each of at most 1 MiB.
            timeout: Seconds of each call; by default the function's.
            return_exceptions: True puts the error of a failed call in the place of its result.

        Returns:
            The results, in the order of `args`.

        Raises:
            AckerError: The error of the first failed call; see `execute`.
        """
        calls, most = [self._call(value, timeout, None) for value in args], self.function.max_pending
        under_way, size, ended = 0, min(_TOGETHER, most), SimpleQueue[object]()
        for first in range(0, len(calls), size):
            part = calls[first : first + size]
            while under_way + len(part) > most:
                ended.get()
                under_way -= 1
            for call in part:
                call.future.ring(ended.put)
            self._begin(part, ids.SLAB_TREES)
            under_way += len(part)
        results = []
        for call in calls:
            try:
                results.append(call.future.result())
            except AckerError as error:
                if not return_exceptions:
                    raise
                results.append(error)
        return results

    def submit(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Answer:
        """Begins a call, and returns a future of its result.

        Callbacks run in threads of their own, 64 at a time in a process, so a callback that waits, as for
        another call, delays no answer.

        Args:
            args: See `execute`.
            timeout: See `execute`.
            key: See `execute`.

        Returns:
            A future of the result, or the error.

        Raises:
            ValidationError: An argument is invalid.
            DRPCFull: 100,000 callbacks wait for a thread.
        """
        return self.begin(args, timeout=timeout, key=key).future

    def begin(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Call:
        """Begins a call as `submit` does, and returns it with the id of its request.

        Arguments and errors: see `submit`.
        """
        if callbacks.waiting() >= callbacks.MOST_WAITING:
            raise DRPCFull(
                f"function {self.function.name!r}: {callbacks.MOST_WAITING:,} callbacks of answers wait for "
                "others that do not end"
            )
        call = self._call(args, timeout, key)
        with self._lock:
            self._asked.append(call)
            self._come.notify_all()
            if not self._sending:
                threading.Thread(target=self._send, daemon=True).start()
                self._sending = True
        return call

    def _call(self, args: object, timeout: float | None, key: str | None) -> Call:
        seconds = self.function.timeout if timeout is None else timeout
        check_number(seconds, "timeout", 0.01, MOST_TIMEOUT, float)
        given: object = key
        if given is None:
            request = secrets.token_hex(16)
        elif isinstance(given, str) and 0 < len(given) <= ids.SLAB_TREES:
            request = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        else:
            raise ValidationError(
                f"key: expected text of 1 to {ids.SLAB_TREES:,} characters, got {shown(given)}"
            )
        return Call(request, as_json(args, "args"), float(seconds))

    def _send(self) -> None:
        """Begins the pending calls: all that have come while the previous ones were written."""
        while True:
            with self._lock:
                if not self._asked and not self._come.wait_for(lambda: bool(self._asked), IDLE):
                    self._sending = False
                    return
                calls, self._asked = self._asked[:_TOGETHER], self._asked[_TOGETHER:]
            self._begin(calls, 1)

    def _begin(self, calls: Sequence[Call], group: int) -> None:
        """Begins calls, in groups of a size; each future gets an answer or the error."""
        try:
            self._waiting.add(calls)
            self._follow()
            self._write(calls, group)
            for call in calls:
                call.begun.set_result(None)
        except Exception as error:  # noqa: BLE001 - otherwise callers would wait for ever
            for call in calls:
                self._waiting.fail(call, error)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forget_calls() -> None:
    """Forgets, in a forked child, the calls of its parent, whose threads the child lacks."""
    for client in list(_clients):
        client._begin_anew()


os.register_at_fork(after_in_child=_forget_calls)
