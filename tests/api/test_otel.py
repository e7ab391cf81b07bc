"""Traces for OpenTelemetry: a tree is exported once, when it is over, with the names of the conventions."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

from acker.ledger.calls import traces as recording
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.ids import Ids
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_totals
from acker.store.client import Store
from acker.streams.commits.contents import Commit
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from api.background import otel
from api.service.service import Service
from api.settings.settings import Settings
from tests.helpers.builders.streaming import commit, consume, stage, take
from tests.helpers.faces.api import serving
from tests.helpers.servers.servers import wait_until


def traced(url: str, name: str = "t") -> Ledger:
    return open_ledger(Store(url), name, ackers=2, traces=1)


def track(ledger: Ledger, rows: int) -> Ids:
    """Tracks so many rows of stream `lines`."""
    [roots] = StreamSpout(ledger, SpoutOptions("s", "lines", "id")).write(pa.table({"id": range(rows)}))
    return roots.anchors()


def split(ledger: Ledger, anchors: Ids, batch: int) -> None:
    """A batch of step `split` takes what is in `lines`, and emits a word of each."""
    by = ledger.run(step_totals.mark(ledger.core, "split", batch))
    commit(ledger, batch, Commit((stage(ledger, anchors),), (take(ledger, "lines", "split"),), by=by))


class Memory(InMemorySpanExporter):
    """Keeps what it gets, each request apart; it takes some only where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[ReadableSpan]] = []
        self.takes: Callable[[Sequence[ReadableSpan]], bool] = lambda _: True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.requests.append(list(spans))
        return super().export(spans) if self.takes(spans) else SpanExportResult.FAILURE


class Exported:
    """An exporter of a service, and what it has exported."""

    def __init__(self, url: str) -> None:
        self._service = Service(Settings(url=url))  # type: ignore[arg-type]
        self.memory = Memory()
        self.exporter = otel.Exporter(self._service, self.memory)

    async def looks(self, times: int = 2) -> list[ReadableSpan]:
        """The spans of so many looks."""
        self.memory.clear()
        for _ in range(times):
            await self.exporter.step()
        return list(self.memory.get_finished_spans())

    async def end(self) -> None:
        await self._service.store.aclose()


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def anchors_of(spans: Iterable[ReadableSpan]) -> list[str]:
    """The trees whose spans these are, each as often as it is there."""
    ids = [facts(one).get(messaging.MESSAGING_MESSAGE_ID) for one in spans if one.parent is None]
    return sorted(str(one) for one in ids if one is not None)


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


async def test_a_tree_is_a_trace_of_its_track_and_its_acks_linked_to_their_batches(url: str) -> None:
    ledger = traced(url)
    anchors = track(ledger, 2)
    split(ledger, anchors, 7)
    exported = Exported(url)
    assert await exported.looks() == []
    consume(ledger, "words")
    spans = await exported.looks()
    await exported.end()
    assert sorted(one.name for one in spans) == sorted(
        ["send lines", "process lines", "process words"] * 2 + ["process lines"]
    )
    by_trace: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        by_trace.setdefault(span.context.trace_id, []).append(span)
    trees = [one for one in by_trace.values() if len(one) == 3]
    [[batch]] = [one for one in by_trace.values() if len(one) == 1]
    assert len(trees) == 2
    for root, lines, words in trees:
        assert root.parent is None
        assert lines.parent == words.parent == root.context
        assert [one.kind for one in (root, lines, words)] == [SpanKind.PRODUCER, *[SpanKind.CONSUMER] * 2]
        assert [[link.context.span_id for link in one.links] for one in (lines, words)] == [
            [root.context.span_id, batch.context.span_id],
            [root.context.span_id],
        ]
        assert root.status.status_code is StatusCode.UNSET
        for span in (lines, words, batch):
            began, acked = times(span)
            assert times(root)[0] <= began <= acked <= times(root)[1]
    assert set(anchors_of(spans)) == {str(one) for one in anchors.tolist()}
    assert [link.context for link in batch.links] == [trees[0][0].context]
    lines = trees[0][1]
    assert lines.instrumentation_scope is not None
    assert lines.instrumentation_scope.schema_url == Schemas.V1_44_0.value
    assert facts(lines) == {
        messaging.MESSAGING_SYSTEM: "acker",
        messaging.MESSAGING_OPERATION_NAME: "process",
        messaging.MESSAGING_OPERATION_TYPE: messaging.MessagingOperationTypeValues.PROCESS.value,
        messaging.MESSAGING_DESTINATION_NAME: "lines",
        messaging.MESSAGING_CONSUMER_GROUP_NAME: "split",
        messaging.MESSAGING_BATCH_MESSAGE_COUNT: 1,
        "acker.topology": "t",
    }
    assert facts(trees[0][0])[messaging.MESSAGING_MESSAGE_ID] in anchors_of(spans)
    assert facts(trees[0][0])[messaging.MESSAGING_OPERATION_TYPE] == "send"


async def test_a_reset_of_its_timeout_is_an_event_of_a_tree(url: str) -> None:
    ledger = traced(url)
    anchors = track(ledger, 1)
    by = ledger.run(step_totals.mark(ledger.core, "split", 7))
    ledger.run(recording.note(ledger.core, recording.resets(ledger.core, anchors, by)))
    consume(ledger, "lines")
    exported = Exported(url)
    root, _ = await exported.looks()
    await exported.end()
    [event] = root.events
    assert event.name == "timeout reset"
    assert dict(event.attributes or {}) == {
        messaging.MESSAGING_CONSUMER_GROUP_NAME: "split",
        "acker.batch": 7,
    }
    assert times(root)[0] <= event.timestamp <= times(root)[1]


async def test_a_failure_and_an_expiry_are_errors_and_each_tree_is_exported_once(url: str) -> None:
    ledger = traced(url)
    failed, expired = track(ledger, 2).tolist()
    ledger.send(ledger.core.fail(np.array([failed]), Cause("no such word", "split").encode()))
    for _ in range(3):
        ledger.tick(force=True)
    first, second = Exported(url), Exported(url)
    spans = await first.looks(1) + await second.looks(2) + await first.looks(2)
    await first.end()
    await second.end()
    roots = {str(facts(one)[messaging.MESSAGING_MESSAGE_ID]): one for one in spans if one.parent is None}
    assert len([one for one in spans if one.parent is None]) == len(roots) == 2
    for anchor, status, reason in ((failed, "failed", "no such word"), (expired, "expired", "")):
        root = roots[str(anchor)]
        assert facts(root)[error_attributes.ERROR_TYPE] == status
        assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, reason)


async def test_pending_trees_hold_no_other_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "_TREES", 3)
    ledger = traced(url)
    track(ledger, 20)
    take(ledger, "lines")
    done = track(ledger, 5)
    ledger.send(ledger.core.fail(done, b"bad"))
    exported = Exported(url)
    spans = await exported.looks(30)
    await exported.end()
    assert anchors_of(spans) == sorted(map(str, done.tolist()))


def failed(ledger: Ledger, rows: int) -> list[str]:
    """So many trees that have failed."""
    anchors = track(ledger, rows)
    ledger.send(ledger.core.fail(anchors, b"bad"))
    return sorted(map(str, anchors.tolist()))


async def test_each_span_of_many_trees_is_sent_by_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "MOST_SPANS", 10)
    ledger = traced(url)
    done = failed(ledger, 50)
    exported = Exported(url)
    assert anchors_of(await exported.looks()) == done
    await exported.end()
    assert {len(one) for one in exported.memory.requests} == {10}


async def test_what_the_collector_does_not_take_waits_until_it_does(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "AGAIN", 0.0)
    ledger = traced(url)
    anchors = track(ledger, 6)
    split(ledger, anchors, 7)
    consume(ledger, "words")
    first, second = Exported(url), Exported(url)
    first.memory.takes = lambda _: False
    assert await first.looks(4) == []
    assert len(first.memory.requests) == 3  # all of them, then the first one by itself, once a look
    first.memory.takes = lambda _: True
    spans = await first.looks(1)
    assert anchors_of(spans) == sorted(map(str, anchors.tolist()))
    batches = [one for one in spans if one.parent is None and "acker.batch" in facts(one)]
    assert len(batches) == 1
    assert await first.looks() + await second.looks() == []
    assert [one.message for one in caplog.records if one.name == "api.background.otel"] == [
        "traces wait in the store: the collector does not take them",
        "the collector takes traces again",
    ]
    await first.end()
    await second.end()


async def test_a_refused_tree_holds_no_other_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = traced(url)
    done = failed(ledger, 20)
    bad = done[7]
    exported = Exported(url)
    exported.memory.takes = lambda spans: bad not in anchors_of(spans)
    monkeypatch.setattr(otel, "AGAIN", 0.0)
    assert await exported.looks() == []
    monkeypatch.undo()
    spans = await exported.looks(1) + await exported.looks(1)
    assert anchors_of(spans) == [one for one in done if one != bad]
    sent = len(exported.memory.requests)
    assert await exported.looks() == []  # not yet again
    assert len(exported.memory.requests) == sent
    await exported.end()


async def test_an_exporter_sends_all_once_at_its_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "SECONDS", 0.0)
    ledger = traced(url)
    done = failed(ledger, 5)
    exported, begun, go = Exported(url), threading.Event(), threading.Event()

    def slow(_: object) -> bool:
        begun.set()
        return go.wait(60)

    exported.memory.takes = slow
    running = asyncio.create_task(exported.exporter.run())
    assert await asyncio.to_thread(begun.wait, 60)
    for _ in range(5):  # as a service asks again and again
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()
    go.set()
    await asyncio.wait([running], timeout=60)
    assert running.done()
    assert anchors_of(exported.memory.get_finished_spans()) == done
    assert len(exported.memory.requests) == 1
    await exported.end()


@pytest.mark.parametrize("listens", [False, True])
async def test_who_is_ended_while_nobody_answers_leaves_the_trees_to_others(
    url: str, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setattr(otel, "SECONDS", 0.0)
    monkeypatch.setattr(otel, "_AT_THE_END", 0.1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
    done = failed(traced(url), 5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        if not listens:
            silent.close()
        collector, begun = otel.otlp(), threading.Event()
        send = collector.export

        def export(spans: Sequence[ReadableSpan]) -> SpanExportResult:
            begun.set()
            return send(spans)

        monkeypatch.setattr(collector, "export", export)
        service = Service(Settings(url=url))  # type: ignore[arg-type]
        running = asyncio.create_task(otel.Exporter(service, collector).run())
        assert await asyncio.to_thread(begun.wait, 60)
        running.cancel()
        await asyncio.wait([running], timeout=30)
        assert running.done()
        await service.store.aclose()
        other = Exported(url)
        assert anchors_of(await other.looks()) == done
        await other.end()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("OTEL_SERVICE_NAME", "nightly", "nightly"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=daily", "daily"),
        ("OTEL_SERVICE_NAME", "", "acker"),
    ],
)
async def test_the_service_is_named_as_the_environment_says_or_acker(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(name, value)
    failed(traced(url), 1)
    exported = Exported(url)
    [span] = await exported.looks()
    await exported.end()
    assert span.resource.attributes["service.name"] == expected


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A server that takes spans over OTLP, and the requests that it got."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_service_sends_them_where_the_environment_says(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "SECONDS", 0.02)
    ledger = traced(url)
    consumed = track(ledger, 3)
    consume(ledger, "lines")
    with collector() as (address, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
        with serving(url, ticker=False, otel=True):
            wait_until(lambda: spans_of(got) >= 2 * len(consumed))
        service = {one.key: one.value.string_value for one in got[0].resource_spans[0].resource.attributes}
        assert service["service.name"] == "nightly"


def spans_of(requests: list[ExportTraceServiceRequest]) -> int:
    return sum(
        len(scope.spans) for request in requests for of in request.resource_spans for scope in of.scope_spans
    )
