"""Traces for OpenTelemetry: a traced tree is exported as spans, once, when its outcome is known.

Names and attributes follow OpenTelemetry's conventions for messaging, 1.44: a message is sent by its
spout, and processed by each step. Where spans go, the SDK's own environment says:
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and so on.

A tree is one trace: a span from its track to its end, with an event for each reset of its timeout, and within
it a span for each ack or fail, which is linked to that and to a span of its batch. Their ids follow from
names, so that others can link to them, and a span that two services export is one.
"""

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from opentelemetry import trace as api
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from acker.errors import AckerError
from acker.inspect.trees import failures, traces
from acker.inspect.trees.failure import Failure
from acker.inspect.trees.traces import TraceEvent
from acker.ledger.async_ledger import AsyncLedger
from acker.ledger.calls import traces as recording
from acker.ledger.settings import topologies
from acker.ledger.trees import trees as ledger_trees
from acker.store.loops import Pace, run_async
from api.service.service import Service

SECONDS = 5.0
"""Between two looks for trees that are over."""
AGAIN = 60.0
"""Seconds after which a tree is tried again that the collector has not taken."""
MOST_SPANS = 512
"""Spans that one request sends, at most; the spans of one tree may exceed it."""
_AT_THE_END = 5.0
_AT_ONCE = 0.5
CONVENTIONS = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
CONSUMER = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
MESSAGES = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
RESET = "timeout reset"
_TREES = 200
"""Of a shard, at one look."""
_KNOWN = 100_000
_log = logging.getLogger(__name__)


class _Ids(IdGenerator):
    """Gives spans the ids that they are to have."""

    trace = span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Known:
    """The latest names that were added, at most 100,000."""

    def __init__(self) -> None:
        self._names: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._names

    def add(self, name: Hashable) -> None:
        self._names[name] = None
        if len(self._names) > _KNOWN:
            self._names.popitem(last=False)

    def forget(self, names: Iterable[Hashable]) -> None:
        for name in names:
            self._names.pop(name, None)


@dataclass(slots=True)
class _Span:
    """A span to be made. ids: of its trace, and its own. times: its begin and its end, in Unix seconds."""

    ids: tuple[int, int]
    operation: Literal["send", "process"]
    destination: str
    times: tuple[float, float]
    facts: dict[str, str | int]
    parent: SpanContext | None = None
    links: list[SpanContext] = field(default_factory=list)
    events: list[TraceEvent] = field(default_factory=list)
    error: tuple[str, str] | None = None
    """failed or expired, and why."""


class _Gathered(SpanProcessor):
    """Spans that are made, until they are sent."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Adds a span, unless the SDK's sampler does not want it."""
        if span.context is not None and span.context.trace_flags.sampled:
            self.spans.append(span)


@dataclass(slots=True)
class _Sending:
    """Trees whose spans wait to be sent, and the batches among these. alone: nothing else goes with them."""

    trees: list[tuple[AsyncLedger, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    alone: bool = False
    done: asyncio.Future[bool] | None = None


class Exporter:
    """Exports the traces of all topologies of a service. collector: gets the spans.

    Spans are sent before further trees are looked at: a collector that is slow is waited for, and what one
    does not take is for a later look, here or by another service.
    """

    def __init__(self, service: Service, collector: SpanExporter) -> None:
        self._service = service
        self._collector = collector
        self._ids, self._gathered = _Ids(), _Gathered()
        self._provider = TracerProvider(resource=_resource(), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(self._gathered)
        self._tracer = self._provider.get_tracer("acker", schema_url=CONVENTIONS)
        self._places: dict[str, dict[int, bytes]] = {}
        self._ended, self._over, self._batches = _Known(), _Known(), _Known()
        self._refused: OrderedDict[Hashable, float] = OrderedDict()
        self._sending = _Sending()
        self._away = False

    async def run(self) -> None:
        """Looks for trees that are over, until it is cancelled; sends what it has of them then."""
        try:
            await run_async(None, self.step, Pace(_log, "traces wait for the store", SECONDS, SECONDS))
        finally:
            await _undisturbed(self._end())

    async def step(self) -> None:
        """Exports trees that are over. It looks at 200 of each shard, in turn."""
        names = await self._service.store.run(topologies.names())
        self._places = {name: self._places.get(name, {}) for name in names}
        for name, places in self._places.items():
            try:
                ledger = await self._service.ledger(name)
                for one in await ledger.run(traces.walk(ledger.core, places, _TREES)):
                    await self._tree(ledger, one.anchor)
                    full = len(self._gathered.spans) >= MOST_SPANS or self._sending.alone
                    if full and not await self._send():
                        return
            except AckerError as error:
                _log.warning("traces of topology %r are not exported now: %s", name, error)
        await self._send()

    async def _tree(self, ledger: AsyncLedger, anchor: int) -> None:
        """Makes the spans of a tree, if it is over and nobody has exported it."""
        name = ledger.config.name, anchor
        refused = self._refused.get(name)
        if name in self._over or (refused is not None and time.monotonic() < refused):
            return
        tree = await ledger.run(ledger_trees.tree(ledger.core, anchor))
        if tree is not None and tree.state != "finished":
            return
        if name not in self._ended:
            self._ended.add(name)  # an ack is noted in the trace just after it is done
            return
        ended = await ledger.run(failures.find(ledger.core, anchor))
        events = await ledger.run(traces.trace(ledger.core, anchor))
        if refused is not None and not await self._send():  # that it keeps no other from being taken
            return
        if not events or not await ledger.run(recording.claim(ledger.core, anchor)):
            self._over.add(name)
            return
        self._sending.trees.append((ledger, anchor))
        self._sending.alone = refused is not None
        self.export(ledger.config.name, anchor, events, ended)

    async def _send(self) -> bool:
        """Sends the spans that there are; whether the collector has taken them.

        What it has not taken is nobody's again: it is tried in a minute, each tree by itself then.
        """
        sending = self._sending
        if not sending.trees:
            return True
        if sending.done is None:
            spans, self._gathered.spans = self._gathered.spans, []
            sending.done = _in_thread(partial(_sent, self._collector, spans))
        accepted = await asyncio.shield(
            sending.done
        )  # a task that is cancelled meanwhile waits for it at the end
        self._sending = _Sending()
        if self._away != (not accepted):
            self._away = not accepted
            _log.warning(
                "the collector takes traces again"
                if accepted
                else "traces wait in the store: the collector does not take them"
            )
        if not accepted:
            self._batches.forget(sending.batches)
        for ledger, anchor in sending.trees:
            name = ledger.config.name, anchor
            self._refused.pop(name, None)
            if accepted:
                self._over.add(name)
                continue
            self._refused[name] = time.monotonic() + AGAIN
            if len(self._refused) > _KNOWN:
                self._refused.popitem(last=False)
            await ledger.run(recording.unclaim(ledger.core, anchor))
        return accepted

    async def _end(self) -> None:
        """Sends what is left, as far as the collector takes it within some seconds."""
        left = asyncio.ensure_future(self._send())
        await asyncio.wait([left], timeout=_AT_THE_END)
        await asyncio.to_thread(self._collector.shutdown)  # it tries no further
        await asyncio.wait([left], timeout=_AT_ONCE)
        if self._sending.done is not None and not self._sending.done.done():
            self._sending.done.set_result(False)  # the collector has not even refused them
        try:
            await left
        except AckerError as error:
            _log.warning("traces that were not sent are lost: %s", error)

    def export(self, topology: str, anchor: int, events: Sequence[TraceEvent], ended: Failure | None) -> None:
        """Makes spans of a tree. events: one or more, the first one first. ended: None where it was acked."""
        spout = next((event.spout for event in events if event.spout), "")
        streams = [event.stream for event in events if event.kind == "emitted"]
        trace_id = _number(16, topology, anchor)
        root = _Span(
            (trace_id, _number(8, topology, anchor, "root")),
            "send",
            streams[0] if streams else spout or topology,
            (events[0].at, max([events[-1].at, *([ended.at] if ended else [])])),
            {"acker.topology": topology, "acker.spout": spout, MESSAGE_ID: str(anchor)},
            events=[event for event in events if event.kind == "reset"],
            error=(ended.status, ended.cause.reason) if ended else None,
        )
        parent = self._make(root)
        for place, event in enumerate(events):
            if event.kind not in ("acked", "failed"):
                continue
            since = [
                earlier.at
                for earlier in events[:place]
                if earlier.kind == "emitted" and earlier.stream == event.stream
            ]
            facts: dict[str, str | int] = {"acker.topology": topology}
            facts |= {CONSUMER: event.step} if event.step else {}
            facts |= {MESSAGES: event.rows} if event.rows else {}
            span = _Span(
                (trace_id, _number(8, topology, anchor, place)),
                "process",
                event.stream or event.step or spout or topology,
                (since[-1] if since else events[0].at, event.at),
                facts,
                parent,
                [parent],
                error=("failed", event.reason) if event.kind == "failed" else None,
            )
            if event.batch >= 0:
                span.links.append(self._batch(topology, event, span))
            self._make(span)

    def _batch(self, topology: str, event: TraceEvent, of: _Span) -> SpanContext:
        """The span of a batch, which has a trace of its own; it is exported with the first of its trees."""
        trace_id = _number(16, topology, event.step, event.batch)
        span_id = _number(8, topology, event.step, event.batch, of.destination)
        if span_id in self._batches:
            return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        self._batches.add(span_id)
        self._sending.batches.append(span_id)
        facts: dict[str, str | int] = {"acker.topology": topology, "acker.batch": event.batch}
        facts |= {CONSUMER: event.step} if event.step else {}
        links = [of.parent] if of.parent is not None else []
        return self._make(_Span((trace_id, span_id), "process", of.destination, of.times, facts, links=links))

    def _make(self, span: _Span) -> SpanContext:
        self._ids.trace, self._ids.span = span.ids
        recorded = self._tracer.start_span(
            f"{span.operation} {span.destination}",
            api.set_span_in_context(api.NonRecordingSpan(span.parent or api.INVALID_SPAN_CONTEXT)),
            SpanKind.PRODUCER if span.operation == "send" else SpanKind.CONSUMER,
            {
                SYSTEM: "acker",
                OPERATION_NAME: span.operation,
                OPERATION_TYPE: span.operation,
                DESTINATION: span.destination,
                **span.facts,
            },
            [Link(one) for one in span.links],
            start_time=int(span.times[0] * 1e9),
        )
        for event in span.events:
            by: dict[str, str | int] = {CONSUMER: event.step} if event.step else {}
            by |= {"acker.batch": event.batch} if event.batch >= 0 else {}
            recorded.add_event(RESET, by, int(event.at * 1e9))
        if span.error is not None:
            recorded.set_attribute(ERROR_TYPE, span.error[0])
            recorded.set_status(Status(StatusCode.ERROR, span.error[1]))
        recorded.end(int(max(span.times) * 1e9))
        return recorded.get_span_context()


def _number(size: int, *names: object) -> int:
    """A number of `size` bytes that follows from some names; never 0."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:size], "big") or 1


def _resource() -> Resource:
    """Returns the resource that the SDK's environment names; by default the service `acker`."""
    found = Resource.create()
    named = not str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: "acker"}))


def _sent(collector: SpanExporter, spans: Sequence[ReadableSpan]) -> bool:
    """True if a collector has taken the spans, or if the SDK's sampler has left none."""
    try:
        return not spans or collector.export(spans) is SpanExportResult.SUCCESS
    except Exception:  # noqa: BLE001 - an exporter is anybody's, and its failing must not end the looks
        _log.exception("spans cannot be exported")
        return False


def _in_thread(function: Callable[[], bool]) -> asyncio.Future[bool]:
    """Returns the future of a function in a daemon thread, which keeps no process from its end."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def end(result: bool) -> None:
        if not future.done():
            future.set_result(result)

    def run() -> None:
        result = function()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end, result)

    threading.Thread(target=run, name="spans", daemon=True).start()
    return future


async def _undisturbed(work: Coroutine[object, object, None]) -> None:
    """Waits for something that is to be finished, however often the task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)


def otlp() -> SpanExporter:
    """Returns the exporter of spans over OTLP and HTTP, as the SDK's environment configures it."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
