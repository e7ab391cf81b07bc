"""Lines are declared once, and what cannot be a line is refused."""

from typing import Any

import pyarrow as pa
import pytest

from acker.errors import LineConflict, SchemaMismatch, UnknownLine, ValidationError
from acker.ledger import ids
from acker.ledger.client import open_ledger
from acker.ledger.slabs import sections
from acker.lines import Gather, Line
from acker.store.client import Store
from acker.streams import StreamWriter
from acker.streams.log import gathers
from acker.streams.log.gathers import Gathering
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from tests.helpers.builders.line_job import Job, new_first
from tests.helpers.builders.streaming import stage


def test_a_line_is_declared_once_with_one_content(job: Job) -> None:
    again = Line(job.ledger, "line", [Gather("rows", 2, ("i",)), Gather("counts")])
    assert again.definition == job.line.definition
    assert again.definition.number == 1
    with pytest.raises(
        LineConflict, match=r"line 'line' of topology 't' gathers otherwise: it has .*tasks=2"
    ):
        Line(job.ledger, "line", [Gather("rows")])
    with pytest.raises(LineConflict, match=r"stream 'counts' cannot gather by \[2,1,1,\[\]\]: it gathers by"):
        Line(job.ledger, "other", [Gather("counts")])
    StreamWriter(job.ledger, "plain").write(pa.table({"a": [1]}))
    with pytest.raises(LineConflict, match=r"stream 'plain' cannot gather .*holds rows that were written"):
        Line(job.ledger, "third", [Gather("plain")])


def test_a_topology_has_31_lines_at_most(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "t", ackers=1)
    numbers = {Line(ledger, f"l{n}", [Gather(f"s{n}")]).definition.number for n in range(sections.LINES)}
    assert numbers == set(range(1, sections.LINES + 1))
    with pytest.raises(ValidationError, match=r"line 'more' cannot be declared .* it has 31 lines, its most"):
        Line(ledger, "more", [Gather("s")])
    untracked = open_ledger(Store(valkey_url), "u", ackers=0)
    with pytest.raises(ValidationError, match="a line needs 1 or more, but topology 'u' has 0"):
        Line(untracked, "line", [Gather("s")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gather("a/b"), "stream: expected 1 to 64"),
        (lambda: Gather("s", 0), "tasks: expected int from 1 to 64"),
        (lambda: Gather("s", 65, ("a",)), "tasks: expected int from 1 to 64"),
        (lambda: Gather("s", 2), "by: expected the columns by which the rows of stream 's' are divided"),
        (lambda: Gather("s", 1, "ab"), "by: expected names of columns"),  # type: ignore[arg-type]
        (lambda: SpoutOptions("s", "lines", "id", group=3), "group: expected with line"),
    ],
)
def test_what_is_declared_is_checked(make: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()


def test_steps_are_checked(job: Job) -> None:
    for wrong, message in (([], "gathers: expected 1 to 7, got 0"), ([Gather("a")] * 2, "got a twice")):
        with pytest.raises(ValidationError, match=message):
            Line(job.ledger, "x", wrong)
    with pytest.raises(ValidationError, match="expected one of the streams of line 'line' that gather, rows"):
        job.line.gather("x", reads="asks")
    with pytest.raises(ValidationError, match="line 'line' has a step of the name 'fan' already"):
        job.line.step("fan", reads="rows")(print)
    with pytest.raises(UnknownLine, match="topology 't' has no line 'nowhere'"):
        StreamSpout(job.ledger, SpoutOptions("s", "asks", "id", line="nowhere")).write(
            pa.table({"id": ["a"], "n": [1]})
        )


def test_rows_that_cannot_gather_are_refused_before_anything_changes(job: Job) -> None:
    ordinary = ids.new_anchors(2)
    first = np_first = new_first(1)
    other = new_first(2)
    later = int(sections.within(ids.as_ids([np_first]), 2)[0])
    for anchors, message in (
        (ordinary.tolist(), "which is of no line"),
        ([other], "which is of line 2"),
        ([later], "gathers at the end of section 1, got a row of section 2: its place in the line is past"),
        ([[first]], "_acker: expected int64, got list<element: int64>"),
        ([first, None], "got 1 rows without"),
        ([first], "stream 'rows' gathers by column 'i': expected it among word"),
    ):
        with pytest.raises((ValidationError, SchemaMismatch), match=message):
            stage(job.ledger, anchors, "rows")


def test_a_writer_that_is_no_step_does_not_write_what_gathers(job: Job) -> None:
    with pytest.raises(
        ValidationError, match="stream: 'rows' gathers the rows of requests: expected a stream"
    ):
        StreamWriter(job.ledger, "rows").write(pa.table({"i": [1]}))
    job.ask(2)
    job.work()
    assert job.sums == [2]


def test_the_tasks_of_values_are_the_same_wherever_they_are_made() -> None:
    rows = pa.table({"a": ["x", "y", None, "x"], "b": [1, 2, 3, 1]})
    found = gathers.tasks_of(Gathering(1, 1, 64, ("a", "b")), "s", rows).tolist()
    assert found == gathers.tasks_of(Gathering(1, 1, 64, ("a", "b")), "s", rows.slice(0)).tolist()
    assert found[0] == found[3]
    assert len(set(found)) == 3
