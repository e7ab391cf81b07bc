"""External streams of a topology that observes: their steps go on whatever becomes of the store.

A stream is opened when the store is there. Until then, and while the store is away, rows are untracked and
get no stamps. Errors are logged, each kind once a minute, and then the store is left alone for five seconds.
So a call waits some seconds at most, and most calls wait for nothing.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from acker.collectors.external import lingering
from acker.collectors.external.blocking import BlockingExchange
from acker.collectors.external.incoming import Incoming
from acker.collectors.external.opening import Opened, open_incoming, open_outgoing
from acker.collectors.external.outgoing import Outgoing
from acker.collectors.external.row import Row
from acker.collectors.modes.observing import PATIENCE, ObservedLedger, ObservingOutbox
from acker.collectors.tuples import Owner, Tuple
from acker.errors import (
    AckerError,
    BufferFull,
    StampsExpired,
    StreamLost,
    UnknownSubscription,
    class_name,
)
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.store.client import Store
from acker.streams.staging.external.rows.stamps import Stamp

PAUSE = 5.0
"""Seconds for which the store is left alone after an error."""
MOST_WAITING = 65_536
"""Rows of flushes that failed, which are kept for a later one at most."""


class ObservingExchange(BlockingExchange):
    """The exchange of an observing topology: its flush logs errors, and drops rows that cannot be sent."""

    observes = True
    outbox: ObservingOutbox

    def __init__(self, ledger: ObservedLedger, outbox: ObservingOutbox, owner: Owner) -> None:
        store = ledger.store
        quick = Store(store.url, timeout=min(store.timeout, PATIENCE), cluster=store.cluster)
        self.quick = ObservedLedger(quick, ledger.config.name, **ledger.asked)
        self._paused_until, self._waiting = 0.0, 0
        self._streams: list[_Observed] = []
        provisional = Core(ledger.config)
        self.ledger, self.outbox = self.quick, outbox
        super(BlockingExchange, self).__init__(provisional, owner)

    def attempt(self, consequence: str, work: Callable[[], object]) -> bool:
        """Does something at the store; returns False where it failed, which is logged, or was not tried.

        After an error that would end a guarded process, the streams are opened anew.
        """
        if time.monotonic() < self._paused_until:
            return False
        try:
            work()
        except AckerError as error:
            self._paused_until = time.monotonic() + PAUSE
            self.outbox.complain(class_name(error), "%s: %s", consequence, error)
            if isinstance(error, StampsExpired | StreamLost | UnknownSubscription):
                self.reset()
            return False
        return True

    def add(self, stream: "_Observed") -> None:
        """Opens a stream, now or when the store is there."""
        with self.lock:
            self._streams.append(stream)
        self.open_all()

    def open_all(self) -> bool:
        """Opens the streams that are not open yet; returns True if all are."""
        for stream in list(self._streams):
            if not stream.is_open and not self.attempt(f"{stream!r} is not open", stream.open):
                return False
        return True

    def reset(self) -> None:
        """Drops all rows, and closes the streams: they are opened anew."""
        with self.lock:
            for row in self.rows_in_work():
                row.anchors, row.shard = (), -1
            rows = self.rows + self._waiting
            self.forget()
            self.streams.clear()
            self._served.clear()
        for stream in list(self._streams):
            stream.close()
        if rows:
            self.outbox.drop(rows, "rows of external streams could not be sent")

    def forget(self) -> None:
        """Drops all rows: a forked child's are its parent's."""
        super().forget()
        self._waiting = 0

    def check_ended(self) -> None:
        """Gives up rows that are neither acked nor failed: their records expire."""
        with self.lock:
            left = self.rows_in_work()
            for row in left:
                self.give_up(row)
        if left:
            self.outbox.complain(
                "rows", "%d rows are neither acked nor failed, the first is %s", len(left), left[0].named()
            )

    def flush(self, *, lingered: bool = False) -> None:
        """Sends what waits. What cannot be sent is tried again with a later flush, up to 65,536 rows."""
        if self.open_all() and self.attempt(
            "rows of external streams wait", lambda: super(ObservingExchange, self).flush(lingered=lingered)
        ):
            self._waiting = 0
        elif self._waiting + self.rows > MOST_WAITING:
            self.reset()

    def _freeze(self) -> None:
        self._waiting += self.rows
        super()._freeze()


class _Observed:
    """A stream that is opened when the store is there."""

    is_open = False

    def open(self) -> None:
        """Opens it in the store."""
        raise NotImplementedError

    def close(self) -> None:
        """Forgets what the store said of it."""
        self.is_open = False


class ObservingIncoming(_Observed, Incoming):
    """The rows of an external stream, for a step that only records. Made by `Topology.incoming`.

    While the store is away, rows are untracked. No call fails because of the store.
    """

    _exchange: ObservingExchange

    def __init__(
        self,
        exchange: ObservingExchange,
        stream: str,
        subscription: str,
        step: str | None,
        shared: bool,
        flush: Callable[[], None],
        **options: Any,
    ) -> None:
        lingering.check(options.get("linger"))
        self._given = stream, subscription, step, shared
        self._options = options
        super().__init__(exchange, Opened(check_name(stream, "stream"), subscription), flush)
        check_name(subscription, "subscription")
        if step is not None:
            check_name(step, "step")
        exchange.add(self)

    def open(self) -> None:
        """Opens the stream for the subscription."""
        exchange = self._exchange
        exchange.core = exchange.quick.core
        opened = exchange.quick.run(open_incoming(exchange, *self._given, **self._options))
        self._slot, self._seal, self._ackers = opened.slot, opened.seal, exchange.core.config.ackers
        self.is_open = True

    def close(self) -> None:
        """Forgets the stream's keys, and what is known of its segments."""
        super().close()
        self._slot, self._seal = None, None
        self._forget_segments()

    def _rows(self, values: Sequence[Any], names: Sequence[str]) -> list[Row]:
        exchange = self._exchange
        exchange.open_all()
        stamps: list[Any] = list(self._read(values))
        if (new := self._new_keys(values, stamps)) and exchange.attempt(
            f"{self!r} has no new keys", lambda: exchange.quick.run(self._learn_keys(new))
        ):
            stamps = list(self._read(values))
        over_by_token, asked = self._look(stamps)
        consequence = f"rows of {self!r} are untracked"
        if asked and not exchange.attempt(
            consequence, lambda: exchange.quick.run(self._learn(over_by_token, asked))
        ):
            tokens = {token for token, _ in asked}
            stamps = [
                "untracked" if isinstance(stamp, Stamp) and stamp.token in tokens else stamp
                for stamp in stamps
            ]
        try:
            return self._make_rows(stamps, names, over_by_token)
        except BufferFull as error:
            exchange.outbox.complain("BufferFull", "%s: %s", consequence, error)
            return [Row(self, where=name) for name in names]


class ObservingOutgoing(_Observed, Outgoing):
    """An external stream that a step sends rows to that only records. Made by `Topology.outgoing`.

    While the store is away, rows get no stamps. No call fails because of the store.
    """

    _exchange: ObservingExchange

    def __init__(self, exchange: ObservingExchange, stream: str, segment_rows: int, **options: Any) -> None:
        lingering.check(options.get("linger"))
        self._options = options
        super().__init__(exchange, check_name(stream, "stream"), None, segment_rows)
        exchange.add(self)

    def open(self) -> None:
        """Opens the stream."""
        exchange = self._exchange
        exchange.core = exchange.quick.core
        opened = exchange.quick.run(open_outgoing(exchange, self.stream, self._most, **self._options))
        self._seal, self.is_open = opened._seal, True

    def close(self) -> None:
        """Forgets the stream's keys."""
        super().close()
        self._seal = None

    def _write(self, source: Row | Tuple, others: Sequence[Row | Tuple]) -> bytes | None:
        """Stamps a row; None where it belongs to no tree, or there is no room."""
        try:
            return super()._write(source, others)
        except BufferFull as error:
            self._exchange.outbox.complain("BufferFull", "rows of %r get no stamps: %s", self, error)
            return None

    def _write_listed(self, rows: Sequence[Row | Tuple]) -> list[bytes] | None:
        try:
            return super()._write_listed(rows)
        except BufferFull:
            return None
