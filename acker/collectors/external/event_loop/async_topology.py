"""External streams of a topology on an event loop: the asyncio twin of that part of `acker.Topology`.

Terms: a segment is the rows of an external stream that one sender stamped together.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from acker.collectors.external.event_loop import apart
from acker.collectors.modes.off import is_off, off_ledger
from acker.errors import AckerError, needing_pyarrow
from acker.ledger.async_ledger import open_ledger
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import Settings
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import Operation

if TYPE_CHECKING:
    from acker.collectors.external.event_loop.async_incoming import AsyncIncoming
    from acker.collectors.external.event_loop.loop_exchange import LoopExchange
    from acker.collectors.external.outgoing import Outgoing

T = TypeVar("T")
log = logging.getLogger("acker")


class AsyncTopology:
    """External streams of a topology, for programs on an event loop.

    A row's `ack` and `fail`, and a stamp, are plain calls, because `flush` alone sends them. All other calls
    are coroutines. None blocks the event loop: a thread computes what a flush sends. Each may be cancelled: a
    flush that was cancelled may be called again, and goes on where it was.

    It belongs to the event loop that first uses it; tasks share it. `Topology` makes spouts and bolts: in a
    thread, or in another process. Their tuples may be stamped here.

    Examples:
        >>> async def main() -> None:
        ...     async with AsyncTopology(URL, "shop") as topology:
        ...         items = await topology.incoming("items", subscription="count")
        ...         words = await topology.outgoing("words")
        ...         row = await items.extract([("traceparent", b"00-1-1-00")])
        ...         headers = words.inject([("traceparent", b"00-1-1-00")], row)
        ...         items.ack(row)
        ...         await topology.flush()
        ...     print(headers)
        >>> asyncio.run(main())  # the message came without a stamp: the row is untracked
        [('traceparent', b'00-1-1-00')]
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        timeout: float = 10.0,
        cluster: bool = False,
        enabled: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        """Names the topology, which the first call opens.

        Args:
            url: URL of the store: see `acker.store.address`.
            name: Name of the topology.
            timeout: Seconds until StoreUnavailable.
            cluster: True if a plain URL names a node of a Redis Cluster.
            enabled: False turns acker off for this object, as for `Topology`.
            **settings: Settings of the topology, as of `Topology`.

        Raises:
            ValidationError: An argument is not valid.
        """
        self._store = AsyncStore(url, timeout=timeout, cluster=cluster)
        self._name, self._settings, self._off = name, settings, is_off(enabled)
        self._exchange: LoopExchange | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening, self._flushing = asyncio.Lock(), asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"AsyncTopology({self._store!r}, {self._name!r})"

    @property
    def name(self) -> str:
        """The topology's name."""
        return self._name

    async def incoming(
        self,
        stream: str,
        *,
        subscription: str,
        step: str | None = None,
        shared: bool = False,
        linger: float | None = None,
        lost_after: float | None = None,
        downtime: float | None = None,
    ) -> "AsyncIncoming":
        """Opens the receiver of an external stream for a subscription, which is created if it is missing.

        Args:
            stream: The stream's name.
            subscription: Its name, as of the step: each subscription has all rows.
            step: The name of the step, by default the subscription's. Processes of one step share it.
            shared: True if steps of other names may serve the subscription, too, which say so as well. Then
                each row is acked when one of the steps has worked on it.
            linger: As of `Topology.incoming`; a task sends.
            lost_after: As of `Topology.incoming`.
            downtime: As of `Topology.incoming`.

        Raises:
            StreamKindError: The stream is managed.
            ValidationError: A name or an option is out of range.
            SubscriptionInUse: A live step of another name serves the subscription. A step is live for 30
                seconds after it was opened, and for at least 20 after its last flush.
            AckerError: pyarrow is not installed.
        """
        with needing_pyarrow("to receive rows of external streams"):
            from acker.collectors.external.event_loop.async_incoming import AsyncIncoming
            from acker.collectors.external.opening import open_incoming
        exchange = await self._opened()
        opening = open_incoming(
            exchange, stream, subscription, step, shared, linger, lost_after=lost_after, downtime=downtime
        )
        opened = await self._run(opening)
        return AsyncIncoming(exchange, opened, self._run, self.flush)

    async def outgoing(
        self,
        stream: str,
        *,
        segment_rows: int = 1_000,
        linger: float | None = None,
        lost_after: float | None = None,
        downtime: float | None = None,
        most_segments: int | None = None,
        most_bytes: int | None = None,
    ) -> "Outgoing":
        """Opens the sender of an external stream.

        Args:
            stream: The stream's name.
            segment_rows: 1 to 65,536. A row that is lost costs its segment: its records are replayed.
            linger: As of `incoming`.
            lost_after: As of `Topology.incoming`.
            downtime: As of `Topology.incoming`.
            most_segments: As of `Topology.outgoing`.
            most_bytes: As of `Topology.outgoing`.

        Raises:
            StreamKindError: The stream is managed.
            ValidationError: The name or an option is out of range.
            AckerError: pyarrow is not installed.
        """
        with needing_pyarrow("to send rows of external streams"):
            from acker.collectors.external.opening import open_outgoing
        exchange = await self._opened()
        opening = open_outgoing(
            exchange, stream, segment_rows, linger, lost_after=lost_after, downtime=downtime,
            most_segments=most_segments, most_bytes=most_bytes,
        )  # fmt: skip
        return await self._run(opening)

    async def flush(self) -> None:
        """Sends all rows that were stamped, acked and failed, as one commit.

        After an error, and after it was cancelled, nothing is lost, and it may be called again: it goes on
        where it was, and takes effect once. Commit no offsets before it has returned. Tasks that call it at
        once wait for each other.

        Raises:
            StoreUnavailable: The store did not answer in time.
            TupleError: Rows are neither acked nor failed; this call has sent nothing.
            StreamFull: A bound of an external stream is reached.
            StampsExpired: The stamps are too old; each further call raises it, too. Start the process again
                from its committed offsets.
            StreamLost: The store has lost an external stream; as StampsExpired.
            UnknownSubscription: A subscription was dropped, or the store has lost it. Start the process again
                from its committed offsets.
            SubscriptionInUse: A live step of another name serves a subscription; this call has sent nothing.
            AckerError: Another event loop calls it.
        """
        await self._flush(lingered=False)

    async def _flush(self, *, lingered: bool) -> None:
        await asyncio.sleep(0)  # clients report deliveries by callbacks: reports that are due come first
        self._check()
        if self._exchange is None:
            return
        if not lingered:
            self._exchange.check_ended()
        async with self._flushing:
            self._check()
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, f"acker flushes {self._name}")
            await apart.run(self._store, self._exchange.sending(lingered), self._thread)

    async def close(self) -> None:
        """Closes the connections. Rows that wait for a flush are dropped, and the log says so.

        If a stream has a linger, they are sent first.

        Raises:
            AckerError: The errors of that flush.
        """
        self._check_loop()
        if self._exchange is not None and self._exchange.task is not None:
            self._exchange.end()
            if self._exchange.waits:
                await self._flush(lingered=True)
        if not self._closed and self._exchange is not None and self._exchange.waits:
            log.warning("acker: topology %r is closed before a flush of its external rows", self._name)
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _opened(self) -> "LoopExchange":
        """The exchange; the first call opens the topology in the store."""
        self._check()
        with needing_pyarrow("for rows of external streams"):
            from acker.collectors.external.event_loop.loop_exchange import LoopExchange
        async with self._opening:
            if self._exchange is None:
                owner = self._store.url, self._name
                send = partial(self._flush, lingered=True)
                self._exchange = LoopExchange(await self._open(), owner, self._off, send)
            return self._exchange

    async def _open(self) -> Core:
        settings: Any = self._settings
        if self._off:
            return off_ledger(Store(self._store.url), self._name, **settings).core
        return (await open_ledger(self._store, self._name, **settings)).core

    async def _run(self, operation: Operation[T]) -> T:
        self._check()
        return await self._store.run(operation)

    def _check(self) -> None:
        self._check_loop()
        if self._closed:
            raise AckerError(f"topology {self._name!r} is closed")

    def _check_loop(self) -> None:
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise AckerError(
                f"topology {self._name!r} belongs to another event loop: make an AsyncTopology for each loop"
            )
