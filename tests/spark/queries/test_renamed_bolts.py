"""A query whose bolt got another name hears of the rows that it holds under the old one."""

import pytest

from acker.ledger.client import Ledger
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.spark.queries import renamed
from acker.spark.queries.microbatches import MicroBatch
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from tests.helpers.builders.streaming import emit, stage


def test_rows_that_are_held_under_the_old_name_of_a_bolt_are_named(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    for name, query in (("pair", "q"), ("shared", "q"), ("shared", "other")):
        ledger.run(step_registry.register(ledger.core, Step(name, "bolt", query_id=query)))
    for stream in ("pair.held", "shared.held"):
        what = Commit((stage(ledger, emit(ledger, 3), stream),))
        ledger.run(commit.commit(ledger.core, stream, 0, what))
    at = MicroBatch("q", 7, "r")
    renamed.look(ledger, at, "pair")
    renamed.look(ledger, MicroBatch("new", 7, "r"), "match")
    assert caplog.records == []
    renamed.look(ledger, at, "match")
    [said] = [one.getMessage() for one in caplog.records]
    assert "query q has run bolt 'pair' before, which holds 3 rows as 'held' in stream 'pair.held'" in said
