"""Traces for OpenTelemetry: a traced tree is exported as spans, once, when its outcome is known.

Names and attributes are those of OpenTelemetry's conventions for messaging, 1.44: a message is sent by its
spout, and processed by each step. Where spans go, the SDK's own environment says:
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and so on.

A tree is one trace: a span from its track to its end, with an event for each reset of its timeout, and within
it a span for each ack or fail, which is linked to a span of its batch. Their ids follow from names, so that
others can link to them, and a span that two services export is one.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from opentelemetry import trace as api
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from acker.errors import AckerError
from acker.inspect import failures, pages, traces
from acker.inspect.aio import AsyncLedger
from acker.inspect.failure import Failure
from acker.inspect.traces import TraceEvent
from acker.ledger import topologies
from acker.ledger import traces as recording
from api.service import Service

SECONDS = 5.0
"""Between two looks for trees that are over."""
CONVENTIONS = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
CONSUMER = "messaging.consumer.group.name"
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


class Exporter:
    """Exports the traces of all topologies of a service. processor: gets the spans."""

    def __init__(self, service: Service, processor: SpanProcessor) -> None:
        self._service = service
        self._ids = _Ids()
        resource = Resource.create({"service.name": "acker"}).merge(Resource.create())
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("acker", schema_url=CONVENTIONS)
        self._places: dict[str, dict[int, bytes]] = {}
        self._ended, self._over, self._batches = _Known(), _Known(), _Known()

    async def run(self) -> None:
        """Looks for trees that are over, until it is cancelled; exports what is left then."""
        try:
            while True:
                try:
                    await self.step()
                except AckerError as error:
                    _log.warning("traces wait for the store: %s", error)
                await asyncio.sleep(SECONDS)
        finally:
            await asyncio.to_thread(self._provider.shutdown)

    async def step(self) -> int:
        """Exports trees that are over; returns how many. It looks at 200 of each shard, in turn."""
        names = await self._service.store.run(topologies.names())
        self._places = {name: self._places.get(name, {}) for name in names}
        done = 0
        for name, places in self._places.items():
            try:
                ledger = await self._service.ledger(name)
                for one in await ledger.run(traces.walk(ledger.core, places, _TREES)):
                    done += await self._tree(ledger, one.anchor)
            except AckerError as error:
                _log.warning("traces of topology %r are not exported now: %s", name, error)
        return done

    async def _tree(self, ledger: AsyncLedger, anchor: int) -> bool:
        """Exports a tree, if it is over and nobody has done so; whether that is done."""
        name = ledger.config.name, anchor
        if name in self._over:
            return False
        tree = await ledger.run(pages.tree(ledger.core, anchor))
        if tree is not None and tree.state != "finished":
            return False
        if name not in self._ended:
            self._ended.add(name)  # an ack is noted in the trace just after it is done
            return False
        ended = await ledger.run(failures.find(ledger.core, anchor))
        events = await ledger.run(traces.trace(ledger.core, anchor))
        self._over.add(name)
        if not events or not await ledger.run(recording.claim(ledger.core, anchor)):
            return False
        self.export(ledger.config.name, anchor, events, ended)
        return True

    def export(self, topology: str, anchor: int, events: Sequence[TraceEvent], ended: Failure | None) -> None:
        """Makes spans of a tree. events: one or more, the first one first. ended: None where it was acked."""
        spout = next((one.spout for one in events if one.spout), "")
        streams = [one.stream for one in events if one.kind == "emitted"]
        trace_id = _number(16, topology, anchor)
        root = _Span(
            (trace_id, _number(8, topology, anchor, "root")),
            "send",
            streams[0] if streams else spout or topology,
            (events[0].at, max([events[-1].at, *([ended.at] if ended else [])])),
            {"acker.topology": topology, "acker.anchor": str(anchor), "acker.spout": spout},
            events=[one for one in events if one.kind == "reset"],
            error=(ended.status, ended.cause.reason) if ended else None,
        )
        parent = self._make(root)
        for place, event in enumerate(events):
            if event.kind not in ("acked", "failed"):
                continue
            since = [one.at for one in events[:place] if one.kind == "emitted" and one.stream == event.stream]
            facts: dict[str, str | int] = {"acker.topology": topology}
            facts |= {CONSUMER: event.step} if event.step else {}
            facts |= {"acker.rows": event.rows} if event.rows else {}
            span = _Span(
                (trace_id, _number(8, topology, anchor, place)),
                "process",
                event.stream or event.step or spout or topology,
                (since[-1] if since else events[0].at, event.at),
                facts,
                parent,
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
        facts: dict[str, str | int] = {"acker.topology": topology, "acker.batch": event.batch}
        facts[CONSUMER] = event.step
        return self._make(_Span((trace_id, span_id), "process", of.destination, of.times, facts))

    def _make(self, span: _Span) -> SpanContext:
        self._ids.trace, self._ids.span = span.ids
        made = self._tracer.start_span(
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
            made.add_event(RESET, by, int(event.at * 1e9))
        if span.error is not None:
            made.set_attribute(ERROR_TYPE, span.error[0])
            made.set_status(Status(StatusCode.ERROR, span.error[1]))
        made.end(int(max(span.times) * 1e9))
        return made.get_span_context()


def _number(size: int, *names: object) -> int:
    """A number of `size` bytes that follows from some names; never 0."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:size], "big") or 1


def otlp() -> SpanProcessor:
    """What sends spans to a collector over OTLP, in batches, as the SDK's environment says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())
