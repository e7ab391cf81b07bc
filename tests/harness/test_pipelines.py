"""The generator of pipelines itself: seeds repeat, each loss is found, and a short run loses nothing."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from acker.errors import AckerError, CommitOrderError, StoreError, UnreadableRecord
from harness.pipelines.ends import CRASH, end_of
from harness.pipelines.operators import (
    ANYWHERE,
    INSIDE,
    KINDS,
    MISTAKES,
    STREAMING,
    Operator,
    Place,
    draw,
    marks,
)
from harness.pipelines.plan import pipeline
from harness.pipelines.runner import Judged, Report
from harness.pipelines.verdict import (
    BROKEN,
    DONE,
    HUNG,
    PLANNED,
    REFUSED,
    SPARK,
    End,
    Observed,
    Reported,
    judge,
)
from tests.helpers.faces.demo_run import Run

# Plans


def test_a_seed_repeats_its_pipeline() -> None:
    assert pipeline(7) == pipeline(7)
    assert pipeline(7).text() != pipeline(8).text()


def test_pipelines_are_code_and_have_all_that_there_is() -> None:
    some = [pipeline(seed) for seed in range(1, 500)]
    for one in some:
        compile(one.code.text, "code", "exec")
        compile("\n".join(one.story), "story", "exec")
    names = {name for one in some for name in one.names}
    assert names >= {
        "stream", "track", "load", "1 spouts", "2 spouts", "1 queries", "2 queries", "union over a set",
        "join of streams", "read without _acker", "written directly", "emit in parts", "emit in threads",
        "emit by a function",
        "thread not awaited", "error of an emit is swallowed", "emit without anchors", "written in a bolt",
        "another plan", "fork", "batch job", "smaller batches",
        "first fails some", "last fails some", "filter", "SQL", "SQL in capitals", "explode", "union",
        "pandas", "join with a table", "repartition", "deduplication", "deduplication by attempts", "limit",
        "watermark",
        "windowed aggregate", "aggregate over batches", "aggregate", "aggregate without alias", "outer join",
        "outer join with nulls", "cache", "pandas groups", "pandas groups with a null", "function per record",
        "hold", "sample", "look", "once", "once without its column",
    }  # fmt: skip
    verbs = {line.partition("(")[0] for one in some for line in one.story}
    assert verbs == {
        "put",
        "run",
        "settle",
        "expire",
        "take_out",
        "keep",
        "restore",
        "forget_offsets",
        "forget_checkpoint",
        "subscribe",
    }
    assert {one.text().count("def start_") for one in some} == {1, 2, 3, 4, 5}


def test_half_of_the_pipelines_make_no_mistake() -> None:
    """So that what is right is tried, too, and not refused all the time."""
    place = Place("last", False, 10, 0)
    mistakes = {
        draw(Random(seed), makers, place).name for makers in (MISTAKES, STREAMING) for seed in range(200)
    } | {"read without _acker", "thread not awaited", "error of an emit is swallowed", "emit without anchors"}
    right = {draw(Random(seed), makers, place).name for makers in (ANYWHERE, INSIDE) for seed in range(200)}
    assert not mistakes & right
    some = [pipeline(seed) for seed in range(1, 500)]
    sound = [one for one in some if not mistakes & {*one.names}]
    assert 200 < len(sound) < 400


def test_marks_of_a_record_follow_from_the_operators() -> None:
    copies = Operator("explode", (), copies=(".a", ".b"))
    kept = Operator("filter", (), drops=frozenset({2}))
    assert marks((kept, copies, copies), 3) == {"3.a.a", "3.a.b", "3.b.a", "3.b.b"}
    assert marks((copies, kept), KINDS + 2) == frozenset()
    assert marks((), 1001) == {"1001"}


# The verdict


def good() -> Observed:
    """Record 1 failed and was acked then, 2 was filtered out, 3 is a dead letter."""
    sink = frozenset({"1.a", "1.b"})
    return Observed(
        expected={1: sink, 2: frozenset(), 3: frozenset({"3"})},
        reported=(
            Reported(1, "failed", 1, False, frozenset()),
            Reported(1, "acked", 2, True, sink),
            Reported(2, "acked", 1, True, frozenset()),
            Reported(3, "expired", 5, True, sink),
        ),
        sink=sink,
        letters=[3],
        pending=0,
        kept=3,
        ends=(End("first", PLANNED, "dies"), End("last", REFUSED, "CommitOrderError: no")),
    )


REPORTED = good().reported
NOTHING: frozenset[str] = frozenset()
EARLY = (replace(REPORTED[1], sink=NOTHING), *REPORTED[2:])
HALF = (replace(REPORTED[1], sink=frozenset({"1.a"})), *REPORTED[2:])


def test_a_good_story_has_no_problem() -> None:
    assert judge(good()) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        # What the rows of the issue do: a record is acked whose rows never come, ...
        ({"reported": EARLY, "sink": NOTHING}, "1 records were reported acked and are not in the sink: 1"),
        # ... or come later, by luck, ...
        ({"reported": EARLY}, "1 records were reported acked and are not in the sink: 1"),
        # ... or some of them.
        ({"reported": HALF}, "1 records were reported acked and are not in the sink: 1"),
        ({"sink": frozenset({"1.b"})}, "were in the sink, and went from it: 1"),
        ({"reported": REPORTED[:3]}, "records vanished: no outcome, and not pending: 3"),
        ({"reported": REPORTED[:3], "files": True}, "of 3 records that were tracked, 2 have an outcome"),
        ({"reported": REPORTED[:3], "files": True, "ends": (End("first", DONE),)}, "vanished"),
        ({"letters": []}, "failed for good and are no dead letters: 3"),
        ({"reported": REPORTED[:3], "pending": 1}, "1 records have no outcome after all their attempts"),
        ({"reported": (*REPORTED, REPORTED[3])}, "two final outcomes: 3"),
        ({"reported": (*REPORTED, replace(REPORTED[2], status="expired"))}, "two final outcomes: 2"),
        ({"reported": (*REPORTED, replace(REPORTED[2], number=9))}, "outcomes are of no record: 9"),
        ({"sink": frozenset({"1.a", "1.b", "2"})}, "marks in the sink are of no record: 2"),
        ({"sink": frozenset({"1.a", "1.b", "7"})}, "marks in the sink are of no record: 7"),
        ({"ends": (End("first", DONE),)}, "dead, and nothing failed them so often: 3"),
        ({"ends": (End("first", BROKEN, "x\nKeyError: 'y'"),)}, "without a type: first (KeyError: 'y')"),
        ({"ends": (End("first", HUNG),)}, "queries did not end: first"),
    ],
)  # fmt: skip
def test_each_violation_is_found(changes: dict[str, object], problem: str) -> None:
    problems = judge(replace(good(), **changes))  # type: ignore[arg-type]
    assert any(problem in one for one in problems), problems


def test_files_that_a_refused_query_did_not_read_are_in_the_files_still() -> None:
    assert judge(replace(good(), reported=REPORTED[:3], letters=[], kept=2, files=True)) == []


# Ends


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (CommitOrderError("late"), REFUSED),
        (AckerError("no"), REFUSED),
        (UnreadableRecord("damaged"), BROKEN),
        (StoreError("full"), BROKEN),
        (RuntimeError(f"java.lang\n{CRASH} end"), PLANNED),
        (RuntimeError('  File "/x/acker/a.py", line 3\nacker.errors.SchemaMismatch: a, b'), REFUSED),
        (RuntimeError('  File "/x/acker/a.py", line 3, in f\n    y\nKeyError: 1'), BROKEN),
        (
            RuntimeError('  File "/x/acker/a.py", line 3, in f\n  File "/p/sql.py", line 1\nKeyError: 1'),
            SPARK,
        ),
        (RuntimeError("[UNSUPPORTED] no"), SPARK),
    ],
)
def test_ends_are_reported_apart(error: Exception, how: str) -> None:
    assert end_of("first", error).kind == how


# The report


def test_a_report_names_seeds_and_counts_what_was_refused() -> None:
    lost = Judged(17, 5.0, ("stream", "limit"), 10, 9, 1, 0, ("no",), (), False, ("one",))
    report = Report([lost, replace(lost, seed=18, problems=(), refusals=(), clean=True)])
    assert report.problems == ["seed 17: one"]
    assert "2 pipelines in 10 s: 1 to their end, 1 refused" in report.table()
    assert "| limit | 2 | 1 | 1 |" in report.table()
    assert "- seed 17: one" in report.table()
    assert "nothing lost" in replace(report, judged=report.judged[1:]).table()
    assert json.loads(json.dumps(report.dump()))["problems"] == report.problems


# A short run


class Pipelines(Run):
    """`python -m harness.pipelines` as a process."""

    command = (sys.executable, "-m", "harness.pipelines")


SEEDS = (3004, 3017, 3020, 3022)
"""A union of parts of what is tracked, jobs, joins, `hold` and `once`: a minute on two cores."""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_short_run_loses_nothing_and_leaves_nothing(tmp_path: Path, java_home: Path) -> None:
    reported = tmp_path / "report.json"
    run = Pipelines(tmp_path, "--seed", *map(str, SEEDS), "--json", str(reported))
    report = run.report(reported)
    assert report["problems"] == []
    assert [one["seed"] for one in report["judged"]] == list(SEEDS)
    assert sum(one["acked"] for one in report["judged"]) > 0
    run.assert_nothing_is_left()
