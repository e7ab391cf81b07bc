"""Reports on a request that waits in a line: the places of its trees, and the reasons of expired ones."""

from functools import partial
from typing import Any

import pytest

from acker.inspect.locate.expiry_reasons import IN_NO_STREAM, explain
from acker.inspect.locate.stuck import stuck
from acker.inspect.locate.why import GATED, OVER, UNKNOWN, why
from acker.inspect.trees import failures
from acker.ledger.client import open_ledger
from acker.ledger.tick import tick
from acker.lines import Out
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams.sources.roots import Roots
from tests.helpers.builders.line_job import Job
from tests.helpers.builders.streaming import take

GATHERS = "waits there until all rows of its request are written"


@pytest.fixture
def job(valkey_url: str) -> Job:
    return Job(open_ledger(Store(valkey_url), "t", ackers=3))


def expired(job: Job, roots: Roots, place: int = 0) -> list[str]:
    """The reasons of a request's expired trees, section by section, after some ticks."""
    ticking = partial(tick.tick, job.ledger.core, force=True, explain=explain)
    for _ in range(4):
        job.ledger.run(ticking())
    found = [job.ledger.run(failures.find(job.ledger.core, anchor)) for anchor in trees(roots, place)]
    return [one.cause.reason for one in found if one is not None]


def trees(roots: Roots, place: int = 0) -> list[int]:
    return [int(roots.anchors(section)[place]) for section in (1, 2, 3)]


def test_a_request_expires_where_its_section_before_is(job: Job) -> None:
    place = "in stream asks for subscription fan, taken by nobody"
    assert expired(job, job.ask(3, 4)) == [place, *[f"waits for section rows: {place}"] * 2]


def test_a_request_expires_where_its_second_section_is(job: Job) -> None:
    roots = job.ask(3, 4)
    job.workers["fan"].work()
    job.coordinate()
    place = "in stream rows for subscription count, taken by nobody"
    assert expired(job, roots) == [place, f"waits for section counts: {place}"]


def test_rows_of_a_request_that_expires_gather(job: Job) -> None:
    roots = job.ask(3, 4)
    job.workers["fan"].work()
    job.coordinate()
    job.workers["count"].work()
    [reason] = expired(job, roots)
    coordinator = "waits for section counts, which is over: no coordinator of lines has seen that yet"
    assert reason == f"in stream counts for subscription add, {GATHERS}; {coordinator}"


def test_a_request_expires_that_waits_for_others_of_its_group(job: Job) -> None:
    def slow(row: dict[str, Any], out: Out) -> None:
        if row["n"]:
            out.emit("slow", {"i": 1})

    job.workers["fan"].step._function = slow  # type: ignore[union-attr]
    roots = job.ask(0, 4)
    job.workers["fan"].work()
    assert expired(job, roots) == ["waits until all requests of its group are done with section rows"] * 2
    place = "in stream slow for its first subscription, taken by nobody"
    assert expired(job, roots, 1) == [place, *[f"waits for section rows: {place}"] * 2]


@pytest.mark.damage
def test_what_is_lost_in_a_section_is_said_of_the_request(job: Job) -> None:
    roots = job.ask(3)
    job.ledger.store.send([command("DEL", keys.Stream("t", "asks").entries)])
    assert expired(job, roots) == [IN_NO_STREAM, *[f"waits for section rows: {IN_NO_STREAM}"] * 2]


def test_a_tree_of_a_section_that_is_over_says_where_the_request_is(job: Job) -> None:
    roots = job.ask(3)
    first, second, last = trees(roots)

    def said(anchor: int) -> str:
        return job.ledger.run(why(job.ledger.core, anchor)).rest

    assert [said(first), said(second), said(last)] == ["", GATED, GATED]
    job.workers["fan"].work()
    assert [said(first), said(second), said(last)] == [OVER, GATED, GATED]
    job.coordinate()
    assert [said(first), said(second), said(last)] == [
        f"its section is over: the request goes on as tree {second}", "", GATED
    ]  # fmt: skip
    job.work()
    assert said(first) == said(second) == UNKNOWN
    assert said(last) == "it is over: its outcome waits for its spout"


def test_the_end_of_a_requests_rows_is_no_row_of_its_reader(job: Job) -> None:
    ledger = job.ledger
    roots = job.ask(3, 4)
    job.workers["fan"].work()
    job.coordinate()
    places = ledger.run(why(ledger.core, trees(roots)[1], rows=True)).places
    ends = [one.rows for one in places if one.text().startswith("the end of its rows in stream rows ")]
    assert ends == [0, 0]
    take(ledger, "rows", "count", segments=9)
    [waiting] = ledger.run(stuck(ledger.core)).stuck
    [share] = waiting.shares
    assert share.holder is not None
    assert share.rows == 7
