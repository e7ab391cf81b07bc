"""Functions (`acker.drpc`) whose steps Spark jobs work on: in the middle, and as the last, which answers."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own examples have it

from acker.drpc import LinearDRPC
from acker.drpc.calling.answer_listener import Call
from acker.drpc.calling.client import Client
from acker.errors import AckerError, DRPCFailed, ValidationError
from acker.spark import Acker, StepCollector, gathered
from acker.spark.functions.spark_steps import StepBolt
from acker.spark.records import function_results, staging
from acker.spark.runtime.arrow import map_in_arrow
from acker.store import keys
from acker.store.operation import command
from acker.streams import Stream
from acker.streams.commits import commit
from acker.streams.log import subscriptions
from acker.testing import run_bolt
from examples.reach import direct
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.builders.reach import (
    FOLLOWERS,
    SHARED,
    TEXT,
    answers,
    answers_of,
    ask,
    bolts,
    echo,
    reach,
    run,
    steps_of,
    topology_of,
)
from tests.helpers.faults.cuts import as_in_a_cluster
from tests.helpers.models.exactness import FailingAfterStaging, cut

pytestmark = pytest.mark.slow


def answer_of(pipeline: Pipeline, function: LinearDRPC, call: Call) -> Any:
    """The answer, where nobody works on the last step any more."""
    with function.work(topology_of(pipeline)):
        return call.future.result(60)


def test_a_job_reads_its_steps_fairly_as_the_function_says(pipeline: Pipeline) -> None:
    function = (
        LinearDRPC("fair")
        .step("one", echo, columns={"what": TEXT})
        .step("two", spark=True, columns={"what": TEXT}, fair_by="what")
        .gather("answer", spark=True, fair_by="_acker")
    )
    steps = Acker(pipeline.url, "t").steps(function)
    for step, column in (("two", b"what"), ("answer", b"_acker")):
        writer = steps.read(pipeline.spark, step).writeStream.foreachBatch(lambda *_: None)
        writer = writer.option("checkpointLocation", str(pipeline.directory / step))
        pipeline.finish(writer.trigger(availableNow=True))
        key = keys.Stream("t", f"fair.{step}").subscriptions
        assert pipeline.ledger.store.send([command("HGET", key, "fair")]) == [column]


@pytest.mark.connect(only=False)
@pytest.mark.oldest
def test_spark_jobs_in_the_middle_and_at_the_end_answer_each_request(pipeline: Pipeline) -> None:
    shared = {**SHARED, "nobody-shared.com": []}
    function = reach()
    found = answers_of(pipeline, function, list(shared), *bolts(steps_of(pipeline, function)))
    assert found == [direct(url, shared, FOLLOWERS) for url in shared]
    assert max(found) > 10


def test_a_request_has_one_result_that_json_has_and_else_fails_alone(pipeline: Pipeline) -> None:
    function = answers()
    big = 1 << 20

    @steps_of(pipeline, function).bolt("answer")
    def answer(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        size = len('{"n":1.5,"text":""}')
        text = F.when(F.col("what").startswith("big"), F.repeat(F.lit("x"), big - size))
        text = F.when(F.col("what") == "bigger", F.repeat(F.lit("x"), big - size + 1)).otherwise(text)
        n = F.when(F.col("what") == "nan", F.lit(float("nan"))).otherwise(F.lit(1.5))
        result = F.struct(n.alias("n"), F.coalesce(text, "what").alias("text"))
        result = F.when(F.col("what") != "null", result)
        made = rows.where("what != 'none'").select("_acker", "what", result.alias("result"))
        twice = made.where("what = 'twice'").withColumn("again", F.explode(F.array(F.lit(1), F.lit(2))))
        apart = made.where("what = 'apart'")
        collector.results(made.where("what != 'twice'").union(apart).union(twice.drop("again")))

    asked = ["a", "nan", "twice", "apart", "none", "null", "big", "bigger"]
    found = dict(zip(asked, answers_of(pipeline, function, asked, answer), strict=True))
    assert found.pop("a") == {"n": 1.5, "text": "a"}
    assert found.pop("null") is None
    assert len(found.pop("big")["text"]) > big - 30
    failed = {what: error for what, error in found.items() if isinstance(error, DRPCFailed)}
    assert {error.step for error in failed.values()} == {"answer"}
    said = {what: error.reason for what, error in failed.items()}
    assert said.pop("nan").startswith("ValidationError: result: expected a value of JSON, got {'n': nan")
    assert said.pop("bigger") == "TooLarge: result: expected at most 1,048,576 bytes of JSON, got 1,048,577"
    assert said == {
        "twice": "answer gave two results",
        "apart": "answer gave two results",
        "none": "answer gave no result",
    }
    assert not pipeline.without_time_to_live("given", "result", "failing", "staged")


def cut_in_its_acks(*_: Any) -> Any:
    raise RuntimeError("cut")


@pytest.mark.parametrize("given", [False, True], ids=["stored", "given"])
def test_results_of_a_commit_that_is_cut_are_given_once_by_the_rerun_without_calling_the_function(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    function, calls = answers(), list[int]()
    steps = steps_of(pipeline, function)

    @steps.bolt("answer")
    def answer(batch: DataFrame, collector: StepCollector) -> None:
        calls.append(1)
        rows, _ = gathered(batch)
        collector.results(rows.select("_acker", F.lit(len(calls)).alias("result")))

    call = ask(pipeline, function, "a")
    with monkeypatch.context() as patched:
        if given:
            as_in_a_cluster(patched)
            patched.setattr(subscriptions, "note_request", cut_in_its_acks)
        else:
            patched.setattr(commit, "commit", cut(1))
        with pytest.raises(Exception, match="cut"):
            run(pipeline, steps, answer)
    run(pipeline, steps, answer)
    assert answer_of(pipeline, function, call) == 1
    assert calls == [1]


def test_results_of_attempts_that_fail_when_they_have_staged_them_leave_no_trace(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = answers()
    steps = steps_of(pipeline, function)

    @steps.bolt("answer")
    def answer(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        collector.results(rows.select("_acker", F.lit("once").alias("result")))

    call = ask(pipeline, function, "a")
    monkeypatch.setattr(staging, "StageTask", FailingAfterStaging)
    run(pipeline, steps, answer)
    assert pipeline.without_time_to_live("given") == []
    [lost] = keys_of(pipeline, "given")
    assert answer_of(pipeline, function, call) == "once"
    assert keys_of(pipeline, "given") == [lost]


def keys_of(pipeline: Pipeline, word: str) -> list[bytes]:
    with redis.Redis.from_url(pipeline.url) as client:
        return list(client.scan_iter(f"*{word}*"))


def test_rows_given_back_while_a_query_answers_are_answered_by_another(pipeline: Pipeline) -> None:
    function = answers()
    steps = steps_of(pipeline, function)
    stream, diary = Stream(pipeline.ledger, "answers.answer"), Diary(pipeline.directory / "answers")

    def answering_with(result: str, back: bool) -> StepBolt:
        @steps.bolt("answer")
        def answer(batch: DataFrame, collector: StepCollector) -> None:
            rows, requests = gathered(batch)
            collector.results(rows.select("_acker", F.lit(result).alias("result")))
            diary.note([result, rows.count(), requests.count()])
            for reader in stream.readers("answer") if back else ():
                stream.give_back(reader, "answer")

        return answer

    call = ask(pipeline, function, "a")
    with pytest.raises(Exception, match="ReaderFenced"):
        run(pipeline, steps, answering_with("late", True), "first")
    run(pipeline, steps, answering_with("new", False), "second")
    assert answer_of(pipeline, function, call) == "new"
    assert diary.read() == [["late", 1, 1], ["new", 1, 1]]


VALUES: list[tuple[str, Any]] = [
    ("null", None),
    ("true", True),
    ("cast(7 as tinyint)", 7),
    ("-9223372036854775808L", -(1 << 63)),
    ("cast(1.5 as float)", 1.5),
    ("1e300D", 1e300),
    ("cast('0.00' as decimal(38, 2))", 0.0),
    ("'ä\"\\n\U0001f600'", 'ä"\n\U0001f600'),
    ("array(1, null, 2)", [1, None, 2]),
    ("array()", []),
    ("map('a b', 1, '', null)", {"a b": 1, "": None}),
    ("named_struct('x', 1, 'y', named_struct('z', null))", {"x": 1, "y": {"z": None}}),
    ("array(map('k', array(named_struct('d', 1.25BD))))", [{"k": [{"d": 1.25}]}]),
    ('parse_json(\'{"a": [1, "x", null]}\')', {"a": [1, "x", None]}),
]
DEEP = "parse_json(repeat('[', 201) || repeat(']', 201))"
BAD = [DEEP, "cast('nan' as double)", "array(cast('-infinity' as double))", "cast(x'636166e9' as string)"]
REFUSED = [
    ("current_date()", "JSON has no date, the type of result"),
    ("array(now())", "JSON has no timestamp, the type of result.element"),
    ("named_struct('a', x'00')", "JSON has no binary, the type of result.a"),
    ("map(1, 2)", "JSON has no map<int,int>, the type of result"),
    ("map('a', interval '1' day)", "JSON has no interval day, the type of result.value"),
    ("named_struct('a', 1, 'a', 2)", "JSON has no struct<a:int,a:int>, the type of result"),
]


def written(rows: DataFrame) -> list[Row]:
    task = function_results.AsJson(rows.schema["result"].dataType)
    return map_in_arrow(rows, task, "_acker bigint, result string, _acker_failed string").collect()


def test_a_result_is_of_any_type_that_json_has(pipeline: Pipeline) -> None:
    for text in [one for one, _ in VALUES] + BAD:
        rows = function_results.checked(
            pipeline.spark.sql(f"select 1L as _acker, {text} as result, 2 as more")
        )
        [row] = written(rows)
        if text in BAD:
            assert row["result"] is None
            assert re.match("ValidationError: result: expected|UnicodeDecodeError", row["_acker_failed"])
        else:
            assert (row["_acker_failed"], json.loads(row["result"])) == (None, dict(VALUES)[text])
    for text, said in REFUSED:
        with pytest.raises(ValidationError, match=re.escape(said)):
            function_results.checked(pipeline.spark.sql(f"select 1L as _acker, {text} as result"))
    for columns in ("1L as _acker", "1L as result", "array(1L) as _acker, 1L as result"):
        with pytest.raises(ValidationError, match="results: expected"):
            function_results.checked(pipeline.spark.sql(f"select {columns}"))


def test_a_digit_of_a_decimal_is_not_lost(pipeline: Pipeline) -> None:
    number = "-12345678901234567890.123456789012345678"
    rows = pipeline.spark.sql(f"select 1L as _acker, cast('{number}' as decimal(38, 18)) as result")
    [row] = written(function_results.checked(rows))
    assert row["result"] == number


def nothing(_: DataFrame, __: StepCollector) -> None:
    pass


def test_each_mistake_of_who_works_on_a_step_has_its_own_message(pipeline: Pipeline) -> None:
    steps = steps_of(pipeline, reach())

    for what, said in [
        ("summ", "function 'reach' has no step 'summ' .did you mean 'sum'.*: it has sharers, following"),
        (
            "sharers",
            "step 'sharers' of function 'reach' is a step in plain Python: declare it with spark=True",
        ),
    ]:
        with pytest.raises(ValidationError, match=said):
            steps.bolt(what)
        with pytest.raises(ValidationError, match=said):
            steps.read(pipeline.spark, what)
    with pytest.raises(ValidationError, match="run_bolt: 'sum' works on a step of a function"):
        run_bolt(steps.bolt("sum")(nothing), pipeline.spark.range(1))
    with pytest.raises(ValidationError, match="expected a last step that gathers"):
        Acker(pipeline.url, "t").steps(LinearDRPC("f").step("one", spark=True, columns={"n": TEXT}))


def test_a_batch_with_a_mistake_gives_nothing_and_the_bolt_that_is_mended_goes_on(pipeline: Pipeline) -> None:
    function = (
        LinearDRPC("f", timeout=500.0)
        .step("first", spark=True, columns={"what": TEXT})
        .gather("last", spark=True)
    )
    steps, said = steps_of(pipeline, function), Diary(pipeline.directory / "said")

    def attempts(batch: DataFrame, *calls: Callable[[], object]) -> None:
        for call in calls:
            try:
                call()
            except AckerError as error:
                said.note(str(error))

    @steps.bolt("first")
    def mistaken(batch: DataFrame, collector: StepCollector) -> None:
        rows = batch.select(F.get_json_object("args", "$").alias("what"), "_acker")
        attempts(
            batch,
            lambda: collector.emit(rows.select("what")),
            lambda: collector.emit(rows.withColumn("what", F.lit(1))),
            lambda: collector.emit(rows.withColumn("more", F.lit(1))),
            lambda: collector.emit(rows.withColumn("_acker", F.array("_acker"))),
            lambda: collector.emit_map(rows, lambda row: row["what"], "that string"),
            lambda: collector.results(rows.withColumn("result", F.lit(1))),
        )

    @steps.bolt("first")
    def first(batch: DataFrame, collector: StepCollector) -> None:
        rows = batch.select(F.get_json_object("args", "$").alias("what"), "_acker")
        collector.emit_map(rows, lambda row: row["what"], "what string")

    @steps.bolt("last")
    def foreign(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        collector.results(rows.select((F.col("_acker") + 8192).alias("_acker"), F.lit(1).alias("result")))

    @steps.bolt("last")
    def lost(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        given = rows.withColumn("result", F.lit(1))
        attempts(
            batch,
            lambda: collector.emit(rows),
            lambda: collector.results(given.withColumn("result", F.current_date())),
            lambda: collector.results(given.withColumn("_acker", F.lit(None).cast("bigint"))),
        )

    @steps.bolt("last")
    def last(batch: DataFrame, collector: StepCollector) -> None:
        rows, _ = gathered(batch)
        collector.results(rows.select("_acker", F.col("what").alias("result")))

    def run_on(bolt: StepBolt, of: str = "") -> None:
        rows = steps.read(pipeline.spark, of or bolt.name, max_rows=10)
        writer = rows.writeStream.foreachBatch(bolt)
        writer = writer.option("checkpointLocation", str(pipeline.directory / (of or bolt.name)))
        pipeline.finish(writer.trigger(availableNow=True))

    line = function.register(topology_of(pipeline))
    call = Client(pipeline.ledger, "f").begin("hello")
    call.begun.result()
    with pytest.raises(Exception, match=r"is not committed, for collector\.emit has failed in it"):
        run_on(mistaken)
    with pytest.raises(
        Exception, match="the bolt of step 'last' of function 'f' was called with a batch of str"
    ):
        run_on(steps.bolt("last")(nothing), of="first")
    with function.work(topology_of(pipeline)):
        run_on(first)
        while not pipeline.rows("f.last"):
            pass
        with pytest.raises(
            Exception, match="rows that give results are anchored to 1 trees that the batch has not read"
        ):
            run_on(foreign)
        with pytest.raises(Exception, match=r"is not committed, for collector\.emit has failed in it"):
            run_on(lost)
        assert not call.future.done()
        run_on(last)
        assert call.future.result() == "hello"
    expected = [
        "emit: step 'first' of function 'f' gives what string, _acker int64, got what string",
        "got what int32, _acker int64",
        "got what string, _acker int64, more int32",
        "got what string, _acker list<element: int64>",
        "emit_map: step 'first' of function 'f' gives what string, _acker int64, got that string, _acker",
        "results: only the last step of function 'f', 'last', gives results, and not 'first': emit rows to",
        "emit: step 'last' is the last of function 'f': it gives the result, by collector.results(rows)",
        "results: JSON has no date, the type of result",
        "results: 1 rows have no request in their column _acker: keep it as it came",
    ]
    found = said.read()
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert part in text
    assert line.name == "f"
