"""Effects that a row has once: over replays and reruns, and where there is no room to remember more."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import EffectsFull, ValidationError
from acker.ledger.calls.core import Core
from acker.spark import Collector, bolt, job
from acker.store.operation import Operation
from acker.streams.commits import commit as commits
from tests.helpers.builders.pipeline import Diary, Pipeline
from tests.helpers.faults.simulator import scripts_of
from tests.helpers.models.exactness import whole_commit

pytestmark = pytest.mark.slow


@dataclass
class Poster:
    """A bolt that posts lines somewhere, and notes which. It raises after that, once, if it is to."""

    pipeline: Pipeline

    @property
    def effects(self) -> Diary:
        return Diary(self.pipeline.directory / "effects")

    def crash(self) -> None:
        (self.pipeline.directory / "crash").touch()

    def run(self) -> set[str]:
        """Runs the query until it has worked on all there is; the lines that it has posted."""
        effects, crash = self.effects, self.pipeline.directory / "crash"

        async def post(record: dict[str, Any]) -> str:
            await asyncio.sleep(0)
            if record["line"].endswith("!"):
                raise ConnectionError("no answer")
            return str(record["line"])

        @bolt(url=self.pipeline.url, topology="t", name="post")
        def post_all(batch: DataFrame, collector: Collector) -> None:
            rows = batch.withColumn("key", F.nullif(F.regexp_replace("line", "!", ""), F.lit("none")))
            fresh = collector.once(rows, "key", horizon=3600)
            collector.fail(fresh.filter("line = 'bad'"), "bad")
            good = fresh.filter("line != 'bad'")
            done = collector.map(good, post, "line string", concurrency=8, timeout=10)
            for row in done.collect():
                effects.note([collector.batch_id, row.line])
            if crash.exists():
                crash.unlink()
                raise RuntimeError("after the effect, before the commit")

        effects.clear()
        self.pipeline.run("post", "lines", post_all)
        return {line for _, line in effects.read()}

    def post(self, *lines: str) -> set[str]:
        self.pipeline.spout(list(lines), segments=min(2, len(lines)))
        return self.run()


def test_a_row_has_its_effect_once_over_replays(pipeline: Pipeline) -> None:
    poster = Poster(pipeline)
    assert poster.post("a", "b", "b", "bad", "c!", "none") == {"a", "b"}
    assert pipeline.outcomes() == {"bad": 1, "ConnectionError: no answer": 1, "once: the key is null": 1}
    # Replays: what had its effect is acked without one, what failed gets its chance.
    assert poster.post("a", "b", "bad", "c", "d") == {"c", "d"}
    assert pipeline.counters() == {"tracked": 11, "acked": 7, "failed": 4}
    assert not pipeline.without_time_to_live("once", "effects", "staged", "payload")


def test_a_row_has_its_effect_once_over_reruns(pipeline: Pipeline) -> None:
    poster = Poster(pipeline)
    assert poster.post("a", "b") == {"a", "b"}
    assert poster.post("a", "b") == set()
    poster.crash()
    with pytest.raises(Exception, match="before the commit"):
        poster.post("b", "c")
    assert poster.effects.read() == [[2, "c"]]
    # The rerun sees what the first run saw: the batch is the same, and so is its effect.
    poster.run()
    assert poster.effects.read() == [[2, "c"]]
    assert poster.post("c") == set()
    assert pipeline.counters() == {"tracked": 7, "acked": 7}
    assert not pipeline.without_time_to_live("once", "effects", "staged", "payload")


def test_a_batch_that_runs_again_gets_its_rows_where_a_node_has_lost_its_commit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, valkey_raw: "redis.Redis"
) -> None:
    """Its sink replaces what the batch has written: without these rows, by nothing."""
    poster = Poster(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr(commits, "commit", cut_after("record_effects"))
        with pytest.raises(Exception, match="cut"):
            poster.post("a", "b")
    [commit] = valkey_raw.scan_iter("*:commits:*")
    valkey_raw.unlink(commit)
    assert poster.run() == {"a", "b"}
    assert poster.post("a", "c") == {"c"}
    assert pipeline.counters() == {"tracked": 4, "acked": 4}


def cut_after(script: str) -> Callable[..., Operation[bool]]:
    """A commit as of a process that ends when it has sent a script, as a cluster has it."""

    def commit(core: Core, *arguments: Any, **named: Any) -> Operation[bool]:
        core.one_server = False
        operation, replies, over = whole_commit(core, *arguments, **named), None, False
        while not over:
            requests = operation.send(replies)  # type: ignore[arg-type]
            replies, over = (yield requests), script in scripts_of(requests)
        core.one_server = True
        raise RuntimeError("cut")

    return commit


def test_a_batch_without_room_for_effects_commits_nothing_until_there_is(pipeline: Pipeline) -> None:
    refused: list[EffectsFull] = []

    def run(limit: int) -> None:
        @bolt(url=pipeline.url, topology="t", name="post")
        def post_all(batch: DataFrame, collector: Collector) -> None:
            collector.emit(batch, stream="copies")
            collector.fail(batch.filter("line = 'bad'"), "bad")
            try:
                rows = collector.once(batch, "line", keep="fresh", limit=limit)
            except EffectsFull as error:
                refused.append(error)
                raise
            collector.emit(rows.drop("fresh"), stream="posted")

        pipeline.run("post", "lines", post_all)

    def posted() -> list[str]:
        return sorted(str(row["line"]) for row in pipeline.rows("posted"))

    first, second = [f"a{n:02}" for n in range(30)], [f"b{n}" for n in range(10)]
    pipeline.spout(first)
    run(limit=3)  # of a batch that finds room, all is remembered
    assert posted() == first
    pipeline.spout([*first, *second, "bad"])
    with pytest.raises(Exception, match=r"EffectsFull: a shard remembers \d+ effects, its limit is 1: raise"):
        run(limit=3)
    assert len(refused) == 1
    assert posted() == first
    assert len(pipeline.rows("copies")) == 30
    assert len(pipeline.rows("lines")) == 41
    assert pipeline.counters() == {"tracked": 71}
    run(limit=1000)
    assert posted() == sorted([*first, *first, *second, "bad"])  # rows of a known key go on, too
    assert pipeline.rows("lines") == []
    assert pipeline.outcomes() == {"bad": 1}
    for stream in ("copies", "posted"):
        pipeline.consume(stream)
    counted = pipeline.counters()
    assert counted.pop("late") > 0
    assert counted == {"tracked": 71, "acked": 70, "failed": 1}
    assert not pipeline.without_time_to_live("once", "effects", "staged", "payload", "failing")


def test_results_of_an_effect_are_emitted_again_when_the_next_step_fails_them(pipeline: Pipeline) -> None:
    """The pattern of the guide: all rows go on, and only what is fresh has its effect."""
    effects = Diary(pipeline.directory / "effects")

    def post_fresh(record: dict[str, Any]) -> str:
        if record["fresh"]:
            effects.note(record["line"])
            if record["line"] == "bad":
                raise ConnectionError("no answer")
        return str(record["line"])

    @bolt(url=pipeline.url, topology="t", name="post")
    def post(batch: DataFrame, collector: Collector) -> None:
        rows = collector.once(batch, "line", keep="fresh")
        collector.emit(collector.map(rows, post_fresh, "line string"), stream="posted")

    def run(*lines: str) -> list[str]:
        effects.clear()
        pipeline.spout(list(lines))
        pipeline.run("post", "lines", post)
        return sorted(effects.read())

    assert run("a", "b", "bad") == ["a", "b", "bad"]
    assert pipeline.outcomes() == {"ConnectionError: no answer": 1}
    with job(pipeline.spark, url=pipeline.url, topology="t", name="next") as collector:
        collector.fail(collector.take("posted"), "not yet")
    assert run("a", "b", "bad") == ["bad"]  # what failed in its effect has it again
    assert sorted(str(row["line"]) for row in pipeline.rows("posted")) == ["a", "b"]
    pipeline.consume("posted")
    assert pipeline.counters() == {"tracked": 6, "failed": 4, "acked": 2}


def test_rows_that_a_replay_would_not_have_are_refused_where_they_go_on(pipeline: Pipeline) -> None:
    pipeline.spout(["a", "b"])
    refused = {
        r"emit: rows that once\(\) has passed on": lambda rows, to: to.emit(rows, "posted"),
        r"hold: rows that once\(\) has passed on|emit: rows that once": lambda rows, to: to.hold(rows),
        r"emit_map: rows that once": lambda rows, to: to.emit_map(rows, str, "line string", "posted"),
        r"emit: expected rows with the column _acker_once": lambda rows, to: to.emit(
            rows.drop("_acker_once"), "posted"
        ),
        r"map: expected rows with": lambda rows, to: to.map(rows.drop("_acker_once"), str, "line string"),
        r"fail: expected rows with": lambda rows, to: to.fail(rows.select("_acker"), "no"),
        r"keep: expected a name that no column of the rows has, got 'Line'": lambda rows, to: to.once(
            rows, "line", keep="Line"
        ),
        r"once: expected rows without the column _acker_once, got rows of an earlier once": (
            lambda rows, to: to.once(rows, "line", sink="other")
        ),
    }
    for message, use in refused.items():
        with pytest.raises(ValidationError, match=message):
            use_once(pipeline, use)
    assert pipeline.rows("posted") == []
    assert len(pipeline.rows("lines")) == 2
    assert pipeline.counters() == {"tracked": 2}


def use_once(pipeline: Pipeline, use: Callable[[DataFrame, Collector], object]) -> None:
    with job(pipeline.spark, url=pipeline.url, topology="t", name="post") as collector:
        rows = collector.take("lines")
        use(collector.once(rows, "line"), collector)
