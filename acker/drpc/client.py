"""Callers of functions: they begin requests, and wait for the answers.

A process has one thread for a function that writes what its callers ask, many requests in one commit, and one
that waits for the answers. Both end when there is nothing to do.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.drpc import callbacks, in_doubt, registry, scripts
from acker.drpc.answer_listener import IDLE, Call, Waiting
from acker.drpc.callbacks import Answer
from acker.drpc.calls import overdue
from acker.drpc.in_doubt import Doubt
from acker.drpc.linear_drpc import CALL, MOST_TIMEOUT
from acker.drpc.out import as_json
from acker.drpc.registry import Description
from acker.errors import (
    AckerError,
    DRPCFull,
    SpoutPendingFull,
    TrackRejected,
    UnknownFunction,
    UnknownLine,
    UnknownTopology,
    ValidationError,
    shown,
)
from acker.ledger import ids
from acker.ledger.client import Ledger, follow
from acker.ledger.settings.settings import check_number
from acker.store import function_keys, keys
from acker.store.operation import Operation, Reply, Request, abreast
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import Prepared, StreamSpout
from acker.workers import row_columns

T = TypeVar("T")
_log = logging.getLogger(__name__)

_TOGETHER = 1_024
_SEGMENTS = 16
"""Segments that calls are divided into which come at one time, so that as many workers can have some."""
_MOST_DOUBTS = 1_000
"""Writes that have ended by an error, of which it is to be found out what became of them, at most."""
_REGISTRATIONS = 3
"""How often calls are written anew whose function was registered otherwise since."""
_GONE = "it was removed, or the store has lost it. Who works on it registers it again"
_FOLLOW = 2.5
"""Seconds after which it is seen whether the topology has changed."""


class _OtherVersion(Exception):
    """The function was removed since it was learnt, and perhaps registered otherwise."""


class Client:
    """Calls a function of a topology. For any thread. Raises UnknownFunction and ValidationError.

    It pickles, and a forked child waits for its own calls.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.function = ledger.run(registry.find(name))
        if self.function.topology != ledger.config.name:
            raise UnknownFunction(
                f"function {name!r} is of topology {self.function.topology!r}, not of {ledger.config.name!r}"
            )
        self.ledger = ledger
        self._begin_anew()

    def _begin_anew(self) -> None:
        row_columns.load_pandas()
        self._own = function_keys.Function(self.ledger.config.name, self.function.name)
        self._lock = threading.RLock()  # reentrant: a signal handler may ask, too
        self._asked: list[Call] = []
        self._spouts: dict[int, StreamSpout] = {}
        self._come = threading.Condition(self._lock)
        self._sending = False
        self._followed = time.monotonic()
        self._doubts: dict[str, Doubt] = {}
        self._waiting = Waiting(lambda: self.function, lambda: self.ledger)
        _clients.add(self)

    def __getstate__(self) -> tuple[Ledger, Description]:
        return self.ledger, self.function

    def __setstate__(self, state: tuple[Ledger, Description]) -> None:
        self.ledger, self.function = state
        self._begin_anew()

    def execute(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Any:
        """Asks, and waits for the result.

        args: what JSON has, 1 MiB at most. timeout: seconds, 0.01 to 86,400; by default the function's. key:
        of the request, so that the same asked twice is worked out once; its answer is known for 10 minutes.

        Raises DRPCFailed with the step and its reason, DRPCTimeout, DRPCFull, ValidationError, and
        StoreUnavailable where it is not known whether the request was begun: asked again with its key, it is
        worked out once.
        """
        return self.submit(args, timeout=timeout, key=key).result()

    async def aexecute(
        self,
        args: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the request's, not that of the wait
        key: str | None = None,
    ) -> Any:
        """As `execute`, for event loops. A cancelled call goes on: nobody hears its answer."""
        future, loop, done = (
            self.submit(args, timeout=timeout, key=key),
            asyncio.get_running_loop(),
            asyncio.Event(),
        )

        def ring(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits
                loop.call_soon_threadsafe(done.set)

        future.ring(ring)
        await done.wait()
        return future.result()

    def execute_many(
        self, args: Iterable[object], *, timeout: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Asks for many, in groups of up to 1,024, and waits for all results, in their order.

        A group goes through the steps together: that is far cheaper, and as slow as its slowest. Of more than
        the function's `max_pending` the others wait for these. Raises as `execute`, for the first that has
        failed; with return_exceptions its error stands for its result.
        """
        calls, most = [self._call(one, timeout, None) for one in args], self.function.max_pending
        under_way, size, ended = 0, min(_TOGETHER, most), SimpleQueue[object]()
        for first in range(0, len(calls), size):
            part = calls[first : first + size]
            while under_way + len(part) > most:
                ended.get()
                under_way -= 1
            for one in part:
                one.future.ring(ended.put)
            self._begin(part, ids.SLAB_TREES)
            under_way += len(part)
        found = []
        for one in calls:
            try:
                found.append(one.future.result())
            except AckerError as error:
                if not return_exceptions:
                    raise
                found.append(error)
        return found

    def submit(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Answer:
        """Asks; returns a future that will have the result, or the error.

        Its callbacks run in threads of their own, 64 at a time in a process: one that waits, as for the next
        question, keeps no answer back. Raises ValidationError, and DRPCFull while 100,000 callbacks wait.
        """
        return self.begin(args, timeout=timeout, key=key).future

    def begin(self, args: object, *, timeout: float | None = None, key: str | None = None) -> Call:
        """As `submit`, and tells which request it is. Raises what it does."""
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
        """Begins what is asked, all that has come while the requests before were written."""
        while True:
            with self._lock:
                if not self._asked and not self._come.wait_for(lambda: bool(self._asked), IDLE):
                    self._sending = False
                    return
                calls, self._asked = self._asked[:_TOGETHER], self._asked[_TOGETHER:]
            self._begin(calls, 1)

    def _begin(self, calls: Sequence[Call], group: int) -> None:
        """Begins calls, in groups of so many; each has its future, whatever becomes of it."""
        try:
            self._waiting.add(calls)
            self._follow()
            self._write(calls, group)
            for call in calls:
                call.begun.set_result(None)
        except Exception as error:  # noqa: BLE001 - whoever waits is to know
            for call in calls:
                self._waiting.fail(call, error)

    def _follow(self) -> None:
        """Looks now and then whether the topology was configured or made anew."""
        if time.monotonic() - self._followed >= _FOLLOW:
            name = self.ledger.config.name
            try:
                found = follow(self.ledger, self.ledger.store, name, create=False)
                if found is not self.ledger:
                    self.ledger, self._spouts = found, {}
            except UnknownTopology as error:
                raise UnknownFunction(f"function {self.function.name!r} has gone: {error}") from error
            self._followed = time.monotonic()

    def _write(self, calls: Sequence[Call], group: int) -> None:
        """Writes calls by the function as it is registered now."""
        for _ in range(_REGISTRATIONS):
            try:
                return self._write_as_known(calls, group)
            except _OtherVersion:
                self._clear_doubts()
                self._learn()
        raise UnknownFunction(
            f"function {self.function.name!r} was registered again and again: nothing was asked"
        )

    def _learn(self) -> None:
        """Learns the function anew, which was removed and registered otherwise. Raises UnknownFunction."""
        known = self.function
        try:
            found = self.ledger.run(registry.find(known.name))
        except UnknownFunction as error:
            raise UnknownFunction(f"function {known.name!r} has gone: {_GONE}") from error
        if found.topology != known.topology:
            raise UnknownFunction(
                f"function {known.name!r} is of topology {found.topology!r} by now, not of {known.topology!r}"
            )
        if found == known:
            raise UnknownFunction(f"function {known.name!r} has gone: {_GONE}")
        _log.warning("function %s was registered otherwise: it is asked as it is now", known.name)
        self.function, self._spouts = found, {}

    def _write_as_known(self, calls: Sequence[Call], group: int) -> None:
        self._clear_doubts()
        name, doubt = self.function.name, Doubt(secrets.token_hex(8), [one.request for one in calls])
        try:
            new, rows, prepared = self._register(calls, group, doubt.caller)
            while new and not self._emit(new, rows, group, doubt, prepared):
                # Some were answered meanwhile, or are not known.
                new, rows, prepared = self._register(new, group, doubt.caller)
        except BaseException as error:
            # What was sent may yet reach the store: whoever asks again does not begin it a second time.
            self._doubts[doubt.writer] = doubt
            if len(self._doubts) > _MOST_DOUBTS:
                self._doubts.pop(next(iter(self._doubts)), None)
            if isinstance(error, SpoutPendingFull | TrackRejected):
                raise DRPCFull(f"function {name!r}: {error}") from error
            if isinstance(error, UnknownLine):
                raise UnknownFunction(f"function {name!r} has gone: {_GONE}") from error
            raise

    def _register(
        self, calls: Sequence[Call], group: int, caller: str
    ) -> tuple[list[Call], pa.Table, Prepared | AckerError | None]:
        """Begins calls; returns those that are the caller's to write. All others are answered elsewhere.

        With them their rows, and what was prepared of these for the spout, or why it cannot be; None: it is
        to be prepared.
        """
        begun, rows = set[str](), _rows(calls)
        # Nearly always all of them are new: what there is to know for their rows is asked along.
        preparing = self._spout(group).prepare(rows, _segments(group))
        # The version first: of another one nothing is prepared, as a schema of a stream that was removed.
        looks: list[Operation[Any]] = [self._check_version(), self._ask(calls, caller), _outcome(preparing)]
        _, replies, prepared = self.ledger.run(abreast(looks))
        if [b"full"] in replies and self.ledger.run(overdue(self.ledger.core, self.function)):
            replies = self.ledger.run(self._ask(calls, caller))
        new: list[Call] = []
        for call, reply in zip(calls, replies, strict=True):
            if reply[0] == b"answered":
                self._waiting.tell(call.request, reply[1])
            elif reply[0] == b"full":
                most = self.function.max_pending
                self._waiting.end(
                    call.request,
                    DRPCFull(f"function {self.function.name!r} has {most:,} calls without answer"),
                )
            elif reply[0] == b"new" and call.request not in begun:  # a key may be asked twice at once
                begun.add(call.request)
                new.append(call)
        if len(new) < len(calls):
            return new, _rows(new), None
        return new, rows, prepared

    def _emit(
        self,
        calls: Sequence[Call],
        rows: pa.Table,
        group: int,
        doubt: Doubt,
        prepared: Prepared | AckerError | None,
    ) -> bool:
        """Writes calls as rows of the first step, where all of them are the caller's still."""
        if isinstance(prepared, AckerError):
            raise prepared
        owned = scripts.own_calls(self._own, doubt.caller, [one.request for one in calls])
        conditions = [owned, self._same_version()]
        return self._spout(group).write_if(
            rows, conditions, doubt.writer, segments=_segments(group), prepared=prepared
        )

    def _same_version(self) -> Request:
        """A script that is answered 1 where the function's first step is the one that is known, else 0."""
        stream = keys.Stream(self.function.topology, self.function.stream(0))
        return scripts.check_version(stream, self.function.version)

    def _check_version(self) -> Operation[None]:
        [same] = yield [self._same_version()]
        if not same:
            raise _OtherVersion

    def _spout(self, group: int) -> StreamSpout:
        if (known := self._spouts.get(group)) is not None:
            return known
        name, attempts, stream = self.function.name, self.function.attempts, self.function.stream(0)
        how = SpoutOptions(name, stream, "request", attempts=attempts, line=name, group=group, letters=False)
        return self._spouts.setdefault(group, StreamSpout(self.ledger, how))

    def _ask(self, calls: Sequence[Call], caller: str) -> Operation[list[Reply]]:
        most = self.function.max_pending
        return (
            yield [
                scripts.call(
                    self.ledger.config,
                    self._own,
                    one.request,
                    caller,
                    max(1, round(one.timeout * 1000)),
                    most,
                )
                for one in calls
            ]
        )

    def _clear_doubts(self) -> None:
        in_doubt.clear_all(self.ledger, self.function, self._doubts)


def _rows(calls: Sequence[Call]) -> pa.Table:
    return pa.table([[one.request for one in calls], [one.args for one in calls]], CALL)


def _segments(group: int) -> int:
    return _SEGMENTS if group == 1 else 1


def _outcome(operation: Operation[T]) -> Operation[T | AckerError]:
    """What an operation returns, or the error that it raises."""
    try:
        return (yield from operation)
    except AckerError as error:
        return error


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forget_calls() -> None:
    """In a forked child: what its parent waits for, by threads that the child does not have."""
    for client in list(_clients):
        client._begin_anew()


os.register_at_fork(after_in_child=_forget_calls)
