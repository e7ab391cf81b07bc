"""The reports of tasks tell which segments a sink has; by two lists of a partition nobody knows."""

from contextlib import suppress

import pytest
from pyspark.sql import DataFrame

from acker.spark import sink
from acker.spark.external import verdicts
from acker.spark.external.reports import Report
from acker.spark.external.sinks import Sink, SinkWriter, Write, may_skip
from acker.spark.external.verdicts import TwoLists


def report(own: int, *tokens: str, stage: int = 1) -> Report:
    return Report("call", stage, own, tuple((token, 0) for token in tokens), len(tokens), 0, 0)


def test_a_stage_that_reports_the_same_again_is_one_list() -> None:
    found = verdicts.lists([report(0, "a"), report(1, "b"), report(0, "a", stage=2)], "items")
    assert sorted(found) == [0, 1]


def test_two_lists_of_a_partition_are_refused_with_the_way_out() -> None:
    with pytest.raises(TwoLists, match="persist=True"):
        verdicts.lists([report(0, "a"), report(0, "b", stage=2)], "items")


@pytest.mark.parametrize(
    ("owns", "count", "whole"), [((0, 1), 2, True), ((0,), 2, False), ((1,), 1, False), ((0,), None, False)]
)
def test_each_own_partition_must_report(owns: tuple[int, ...], count: int | None, whole: bool) -> None:
    found = verdicts.lists([report(own, "a") for own in owns], "items")
    assert verdicts.is_whole(found, count) is whole


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("begun", "skips"), [(False, False), (False, True), (True, False)])
def test_whole_reports_count_alone_unless_the_sink_may_have_skipped(
    begun: bool, skips: bool, same: bool
) -> None:
    assert verdicts.choose(whole=True, begun=begun, skips=skips, same=same) == (True, False)


@pytest.mark.parametrize(("whole", "chosen"), [(True, (True, True)), (False, (False, True))])
def test_a_skipping_sink_has_the_earlier_list_and_what_is_whole_now(
    whole: bool, chosen: tuple[bool, bool]
) -> None:
    assert verdicts.choose(whole=whole, begun=True, skips=True, same=True) == chosen


@pytest.mark.parametrize(
    ("whole", "begun", "skips"), [(True, True, True), (False, True, True), (False, True, False)]
)
def test_an_earlier_list_of_other_inputs_is_not_sent(whole: bool, begun: bool, skips: bool) -> None:
    assert verdicts.choose(whole=whole, begun=begun, skips=skips, same=False) is None


def test_reports_that_are_not_whole_say_nothing_in_the_first_run() -> None:
    assert verdicts.choose(whole=False, begun=False, skips=False, same=False) is None


def test_inputs_of_more_rows_have_another_digest() -> None:
    assert verdicts.digest([("orders", 1, 0, 10)], []) == verdicts.digest([("orders", 1, 0, 10)], [])
    assert verdicts.digest([("orders", 1, 0, 20)], []) != verdicts.digest([("orders", 1, 0, 10)], [])


class NoRows(Exception):
    """A write comes so far that it asks for its rows."""


def no_rows(_: SinkWriter) -> DataFrame:
    raise NoRows


@pytest.mark.parametrize(
    ("to", "txn", "skips"),
    [
        (lambda w: w.parquet("p"), True, False),
        (lambda w: w.mode("ignore").parquet("p"), False, True),
        (lambda w: w, False, True),
        (lambda w: w.format("delta").save("p"), False, False),
        (lambda w: w.format("delta").save("p"), True, True),
        (lambda w: w.format("delta").option("txnAppId", "a").saveAsTable("t"), False, True),
        (lambda w: w.format("Iceberg").mode("append").saveAsTable("lake.t"), False, False),
        (lambda w: w.format("iceberg").save("lake.t"), False, False),
        (lambda w: w.format("iceberg").insertInto("t"), False, True),
        (lambda w: w.saveAsTable("t"), False, True),
        (lambda w: w.format("other").save(), False, True),
        (sink(lambda w: w.format("other").save(), skips=False), False, False),
    ],
)
def test_a_sink_may_skip_unless_its_format_is_known_to_write_each_time(
    to: Sink | Write, txn: bool, skips: bool
) -> None:
    writer, kind = SinkWriter(no_rows), to if isinstance(to, Sink) else Sink(to)
    with suppress(NoRows):
        kind.function(writer)
    assert may_skip(kind, writer, txn=txn) is skips
