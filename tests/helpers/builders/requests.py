"""Requests of a line whose words a Spark job writes to a stream that gathers (test_crashes.py)."""

import time
from typing import Any

import pyarrow as pa

from acker.lines import Gather, Line, Out, Request
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.faults.attempts import BY

TASKS = 3
_PARTS = 4


def ask(pipeline: Pipeline, lines: list[str]) -> Line:
    """Makes each line a request, of which a row is in the stream `lines`; its words gather in `words`."""
    line = Line(pipeline.ledger, "line", [Gather("words", tasks=TASKS, by=("word",))])
    spout = StreamSpout(pipeline.ledger, SpoutOptions("asks", "lines", "id", line="line"))
    for part in range(_PARTS):
        spout.write(pa.table({"id": lines[part::_PARTS], "line": lines[part::_PARTS]}))
    return line


def gather(pipeline: Pipeline, line: Line, lines: list[str]) -> tuple[list[str], set[str]]:
    """The words that have gathered of all requests, sorted, and the attempts of tasks that have written them.

    Each request and task has ended once.
    """
    found: list[tuple[str, str]] = []
    ended: list[tuple[int, int]] = []

    @line.gather("words", reads="words")
    class Words:
        def __init__(self, request: Request) -> None:
            self.own, self.rows = (request.id, request.task), list[tuple[str, str]]()

        def execute(self, row: dict[str, Any]) -> None:
            self.rows.append((row["word"], row.get(BY) or ""))

        def finished(self, _: Out) -> None:
            found.extend(self.rows)
            ended.append(self.own)

    with line.work():
        done, deadline = 0, time.monotonic() + 120
        while done < len(lines) and time.monotonic() < deadline:
            done += settler.settle(pipeline.ledger).all
    assert len(ended) == len(set(ended)) == TASKS * len(lines)
    assert pipeline.counters() == {"tracked": 2 * len(lines), "acked": 2 * len(lines)}
    return sorted(word for word, _ in found), {by for _, by in found}
