"""The overview of lines: the rows that wait in each gather, and the section of a request."""

import json
import time
from typing import Any

import pyarrow as pa
import pytest

from acker.cli.app import run
from acker.inspect.lines.overview import overview, request
from acker.lines import Out
from acker.store import keys
from acker.store.operation import command
from acker.streams import Stream, StreamWriter
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.workers.steps import FunctionStep
from acker.workers.worker import Worker
from tests.helpers.builders.line_job import Job
from tests.helpers.faces.api import calling, serving


def waiting(job: Job) -> list[tuple[int, int]]:
    """Rows and groups of each gather."""
    [line] = job.ledger.run(overview(job.ledger.core))
    return [(one.rows, one.groups) for one in line.gathers]


def test_what_waits_is_counted_until_it_goes_on(job: Job) -> None:
    assert waiting(job) == [(0, 0), (0, 0)]
    roots = job.ask(3, 4)
    others = job.ask(5)
    job.workers["fan"].work()
    assert waiting(job) == [(12, 2), (0, 0)]
    [line] = job.ledger.run(overview(job.ledger.core))
    assert 0 <= (line.gathers[0].oldest or 0.0) < 60
    # Both may have come in the same millisecond.
    assert line.gathers[0].oldest_request in [int(one.anchors(1)[0]) for one in (roots, others)]
    assert line.gathers[1].oldest_request is None
    job.ledger.fail(roots.anchors(2)[:1])
    job.work()
    assert waiting(job) == [(0, 0), (0, 0)]
    assert sorted(job.sums) == [4, 5]


def test_a_gather_that_nobody_reads_is_told(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = job.ledger
    roots = job.ask(3)
    job.work()
    at = int(roots.anchors(1)[0])
    commands = ["lines", ledger.config.name, "--url", ledger.store.url]
    assert run(commands) == 0
    assert "nobody" not in capsys.readouterr().out
    assert Stream(ledger, "rows").unsubscribe("count", ack=True) == 0
    [line] = ledger.run(overview(ledger.core))
    assert [one.read for one in line.gathers] == [False, True]
    assert [one.read for one in ledger.run(request(ledger.core, at)).sections] == [False, True, True]
    assert run(commands) == 0
    assert "by nobody" in capsys.readouterr().out
    assert run([*commands, str(at)]) == 0
    assert "gone on; no step reads it" in capsys.readouterr().out


def test_an_unread_stream_is_told_with_its_line(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = job.ledger
    commands = ["lines", ledger.config.name, "--url", ledger.store.url]

    def others() -> list[tuple[str, int]]:
        [line] = ledger.run(overview(ledger.core))
        assert all(0 <= (one.oldest or 0.0) < 60 for one in line.unread)
        return [(one.stream, one.rows) for one in line.unread]

    def mistyped(row: dict[str, Any], out: Out) -> None:
        out.emit("rosw", {"i": 1})
        out.emit("rosw", {"i": 2})

    # Rows of no line, which nobody reads either: of a spout of its own, and of none. The random name of a
    # slab may look like a line's; the names of four do not.
    for message_id in "abcd":
        StreamSpout(ledger, SpoutOptions("alone", "alone", "id")).write(pa.table({"id": [message_id]}))
    StreamWriter(ledger, "plain").write(pa.table({"id": ["a"]}))
    worker = Worker(ledger, FunctionStep("second", "asks", mistyped))
    worker.work()
    job.ask(3)
    job.work()
    assert others() == []
    assert run(commands) == 0
    assert "nobody" not in capsys.readouterr().out
    assert worker.work() == 1
    assert others() == [("rosw", 2)]
    assert run(commands) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["line", "rosw", "2"] in [words[:3] for words in said]
    # What nobody works on yet is told, too.
    Stream(ledger, "asks").unsubscribe("fan")
    Stream(ledger, "asks").unsubscribe("second")
    job.ask(1)
    assert others() == [("asks", 1), ("rosw", 2)]
    Stream(ledger, "rosw").subscribe("late")
    assert others() == [("asks", 1)]


def test_a_stream_that_cannot_be_read_hides_no_line(job: Job) -> None:
    ledger = job.ledger
    Stream(ledger, "asks").unsubscribe("fan")
    job.ask(3)
    [line] = ledger.run(overview(ledger.core))
    assert [one.stream for one in line.unread] == ["asks"]
    own = keys.Stream("t", "asks").subscriptions
    [count] = [one for one in ledger.store.send([command("HKEYS", own)])[0] if one.startswith(b"rows:")]
    ledger.store.send([command("HSET", own, count, "many")])
    [line] = ledger.run(overview(ledger.core))
    assert ([one.gather.stream for one in line.gathers], line.unread) == (["rows", "counts"], ())


def test_what_is_dropped_waits_no_more(job: Job) -> None:
    roots = job.ask(3)
    job.workers["fan"].work()
    job.ledger.fail(roots.anchors(1))
    job.coordinate()
    assert waiting(job) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("rows", [False, True])
def test_a_group_that_is_dropped_says_when(job: Job, rows: bool) -> None:
    roots = job.ask(3)
    if rows:
        job.workers["fan"].work()
        job.ledger.fail(roots.anchors(2))
    job.ledger.fail(roots.anchors(1))
    job.coordinate()
    first, *_ = job.ledger.run(request(job.ledger.core, int(roots.anchors(1)[0]))).sections
    assert time.time() - 60 < (first.released_at or 0.0) < time.time() + 60


def states(job: Job, anchor: int) -> list[tuple[str | None, str | None, bool, int]]:
    seen = job.ledger.run(request(job.ledger.core, anchor))
    return [
        (
            one.stream,
            one.tree.state if one.tree else None,
            one.released,
            sum(each.rows for each in one.gathered),
        )
        for one in seen.sections
    ]


def test_a_request_tells_how_far_each_section_is(job: Job) -> None:
    roots = job.ask(3)
    anchor = int(roots.anchors(2)[0])
    assert states(job, anchor) == [
        ("rows", "pending", False, 0), ("counts", "pending", False, 0), (None, "pending", False, 0)
    ]  # fmt: skip
    job.workers["fan"].work()
    assert states(job, anchor)[0] == ("rows", "finished", False, 3)
    first, *_ = job.ledger.run(request(job.ledger.core, anchor)).sections
    assert (first.over, first.passed) == (True, False)  # until all of its group are
    waits = job.ledger.run(request(job.ledger.core, anchor)).sections[0].gathered
    assert all(0 <= (one.age or 0.0) < 60 for one in waits)
    job.coordinate()
    assert states(job, anchor)[:2] == [("rows", None, True, 0), ("counts", "pending", False, 0)]
    first, second, _ = job.ledger.run(request(job.ledger.core, anchor)).sections
    assert (first.over, first.passed, second.over) == (True, True, False)
    assert first.tree is None
    assert second.tree is not None
    assert second.tree.tracked_at <= (first.released_at or 0.0) < second.tree.tracked_at + 60
    job.work()
    assert [one[2] for one in states(job, anchor)] == [True, True, False]


def test_programs_and_people_are_told_the_same(
    job: Job, valkey_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACKER_URL", valkey_url)
    anchor = str(int(job.ask(3).anchors(1)[0]))
    job.workers["fan"].work()

    def printed(*words: str) -> Any:
        assert run(["lines", "t", *words]) == 0
        return capsys.readouterr().out

    with serving(valkey_url, ticker=False) as address, calling(address, "") as client:
        [line] = client.get("/topologies/t/lines").json()["lines"]
        asked = client.get(f"/topologies/t/lines/requests/{anchor}").json()
        unknown = client.get("/topologies/t/lines/requests/1")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:acker:unknown-line")
    [told] = json.loads(printed("--json"))
    for one in (*told["gathers"], *line["gathers"]):
        one["oldest"] = one["oldest"] is not None
    assert told == line
    assert [one["rows"] for one in line["gathers"]] == [3, 0]
    again = json.loads(printed(anchor, "--json"))
    for one in (*again["sections"][0]["gathered"], *asked["sections"][0]["gathered"]):
        one["age"] = one["age"] is not None
    assert [one["gathered"] for one in again["sections"]] == [one["gathered"] for one in asked["sections"]]
    assert "line   rows" in printed()
    assert "3 rows of its group, for tasks 0" in printed(anchor)
    assert run(["lines", "t", "1"]) == 4
    assert "expected one of a tree of a line" in capsys.readouterr().err
