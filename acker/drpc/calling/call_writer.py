"""Writing of calls: groups of them begin, and become rows of the function's first step.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece; a group is requests of a
line that were tracked together.
"""

import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa  # noqa: TID251 - rows travel as Arrow, from and to Spark and plain Python

from acker.drpc import registry, scripts
from acker.drpc.calling import in_doubt
from acker.drpc.calling.answer_listener import Call, Waiting
from acker.drpc.calling.in_doubt import Doubt
from acker.drpc.calls import overdue
from acker.drpc.linear_drpc import CALL
from acker.drpc.registry import Description
from acker.errors import (
    AckerError,
    DRPCFull,
    SpoutPendingFull,
    TrackRejected,
    UnknownFunction,
    UnknownLine,
    UnknownTopology,
)
from acker.ledger.client import Ledger, follow
from acker.ledger.settings.topologies import ATTEMPTS, is_late, read_marks
from acker.store import function_keys, keys
from acker.store.operation import Operation, Reply, Request, abreast
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import Prepared, StreamSpout

T = TypeVar("T")
_log = logging.getLogger(__name__)

_SEGMENTS = 16
"""Segments among which simultaneous calls are divided, so that several workers get some."""
_MOST_DOUBTS = 1_000
"""Most failed writes in doubt that are remembered until they are resolved."""
_REGISTRATIONS = 3
"""Attempts to write calls while their function is registered otherwise."""
_GONE = "it was removed, or the store has lost it. Its workers register it again"
_FOLLOW = 2.5
"""Seconds after which the topology is checked for changes."""


class _OtherVersion(Exception):
    """The function was removed since it was read, and perhaps registered otherwise."""


class CallWriter:
    """Begins calls of a function, and writes their rows, for a `Client`.

    Args:
        ledger: The ledger of the topology.
        function: The function.
    """

    def __init__(self, ledger: Ledger, function: Description) -> None:
        self.ledger = ledger
        self.function = function

    def _begin_anew(self) -> None:
        self._own = function_keys.Function(self.ledger.config.name, self.function.name)
        self._spouts: dict[int, StreamSpout] = {}
        self._followed = time.monotonic()
        self._seen: tuple[tuple[bytes, int] | None, float] = None, 0.0
        self._doubts: dict[str, Doubt] = {}
        self._waiting = Waiting(lambda: self.function, lambda: self.ledger)

    def _follow(self) -> None:
        """Checks now and then for a changed topology."""
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
        """Writes calls by the present registration of the function."""
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
        """Reads the function again after it was registered otherwise. Raises UnknownFunction."""
        former = self.function
        try:
            registered = self.ledger.run(registry.find(former.name))
        except UnknownFunction as error:
            raise UnknownFunction(f"function {former.name!r} has gone: {_GONE}") from error
        if registered.topology != former.topology:
            raise UnknownFunction(
                f"function {former.name!r} is of topology {registered.topology!r} by now, not of "
                f"{former.topology!r}"
            )
        if registered == former:
            raise UnknownFunction(f"function {former.name!r} has gone: {_GONE}")
        _log.warning("function %s was registered with another definition: calls go to that one", former.name)
        self.function, self._spouts = registered, {}

    def _write_as_known(self, calls: Sequence[Call], group: int) -> None:
        self._clear_doubts()
        name, doubt = self.function.name, Doubt(secrets.token_hex(8), [one.request for one in calls])
        try:
            new, rows, prepared = self._register(calls, group, doubt.caller)
            while new and not self._emit(new, rows, group, doubt, prepared):
                # Some were answered meanwhile, or are not known.
                new, rows, prepared = self._register(new, group, doubt.caller)
        except BaseException as error:
            # The sent requests may still reach the store: a repeated call must not begin them again.
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
        """Begins calls; returns the calls that this caller must write. All others are answered elsewhere.

        Also returns their rows, and the prepared write of the spout, or its error; None if the rows must
        still be prepared.
        """
        begun, rows = set[str](), _rows(calls)
        # Nearly always all of them are new, so the same flight reads the state that their rows need.
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
        """Writes calls as rows of the first step, if all of them still belong to this caller."""
        if isinstance(prepared, AckerError):
            raise prepared
        owned = scripts.check_caller(self._own, doubt.caller, [one.request for one in calls])
        conditions = [owned, self._same_version()]
        return self._spout(group).write_if(
            rows, conditions, doubt.writer, segments=_segments(group), prepared=prepared
        )

    def _same_version(self) -> Request:
        """Returns a script call whose reply is 1 if the first step has this version, otherwise 0."""
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
        most, config = self.function.max_pending, self.ledger.config
        for _ in range(ATTEMPTS):
            seen, until = self._seen
            if seen is None or time.monotonic() >= until:
                [seen] = yield from read_marks([self._own.removals], scripts.VALID)
                self._seen = seen, time.monotonic() + scripts.VALID / 2
            replies = yield [
                scripts.begin_call(
                    config,
                    self._own,
                    call.request,
                    caller,
                    max(1, round(call.timeout * 1000)),
                    most,
                    seen,
                )
                for call in calls
            ]
            if not any(map(is_late, replies)):
                return replies
            self._seen = None, 0.0
        raise AckerError(f"function {self.function.name!r} was removed {ATTEMPTS} times while it was called")

    def _clear_doubts(self) -> None:
        in_doubt.clear_all(self.ledger, self.function, self._doubts)


def _rows(calls: Sequence[Call]) -> pa.Table:
    return pa.table([[one.request for one in calls], [one.args for one in calls]], CALL)


def _segments(group: int) -> int:
    return _SEGMENTS if group == 1 else 1


def _outcome(operation: Operation[T]) -> Operation[T | AckerError]:
    """Returns the result of an operation, or the error that it raises."""
    try:
        return (yield from operation)
    except AckerError as error:
        return error
