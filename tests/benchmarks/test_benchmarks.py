"""Each part of `python -m benchmarks` at a tiny size: it runs, and gives the figures that it promises."""

import importlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import drpc, lines
from benchmarks.figures import Sample, markdown, rows, shown

pytestmark = pytest.mark.slow

PARTS = {part.name: part for part in program.parts()}
TINY: dict[str, dict[str, Any]] = {
    "updates": {
        "rounds": 1, "trees": 2_000, "singles": 200, "scattered": 100, "slabs": (1, 1024), "clients": (1,),
        "commands": 2_000,
    },
    "single": {"rounds": 2, "trees": 3},
    "tick": {"rounds": 1, "trees": (2_000,), "before": 0},
    "growth": {
        "rounds": 1, "trees": (10_000,), "singles": (200, 400), "fields": (100,), "tuples": (1, 3),
        "shards": (1, 3), "topologies": (1, 2), "shard_trees": 9_000, "updates": 20_000,
        "single_updates": 400, "commands": 2_000,
    },
    "cluster": {"rounds": 1, "masters": (1, 2), "trees": 4_096, "clients": 1},
    "sizing": {"rounds": 1, "rows": 40, "writes": (20,)},
    "external": {
        "rounds": 1, "records": 500, "rows": 500, "segments": (20, 100), "bits": (40,), "halves": 2,
        "open": 30,
    },
    "peers": {
        "rounds": 1, "only": ("streams", "acker-streams", "acker-collectors", "acker-vectors"),
        "quick_parents": 20, "workers": 1,
    },
}  # fmt: skip
HASH = "beside the hash of vectors that a managed stream has, too"
NAMES = {
    "updates": {
        "HINCRBY", "script of nothing", "slabs of 1: memory", "slabs of 1, tracked", "slabs of 1, rejected",
        "slabs of 1, dense, one client", "slabs of 1,024: memory", "slabs of 1,024, tracked",
        "slabs of 1,024, rejected", "slabs of 1,024, scattered, one client",
        "slabs of 1,024, dense, one client", "slabs of 1,024, none finished, dense",
        "slabs of 1,024, early, dense",
        *(f"slabs of 1,024, {share} % finished, dense" for share in (25, 50, 90)),
    },
    "single": {
        f"{way}, {part}"
        for way in ("PING", "flushed", "linger of 0 ms", "linger of 5 ms")
        for part in ("p50", "p99")
    },
    "tick": {
        "2,000 trees: drained", "2,000 trees: longest command",
        "2,000 trees: most processor time of a call",
        *(
            f"2,000 trees: another client, {when}, {part}"
            for when in ("without tick", "during ticks")
            for part in ("p50", "p99.9", "longest")
        ),
    },
    "growth": {
        "trees in flight, slabs of 1,024: 10,000", "trees in flight, slabs of one: 200",
        "trees in flight, slabs of one: 400", "fields of a hash, HINCRBY: 100", "tuples per tree: 1",
        "tuples per tree: 3", "shards: 1", "shards: 3", "topologies: 1", "topologies: 2",
    },
    "cluster": {"masters: 1", "masters: 2"},
    "sizing": {
        f"{kind}, 20 to a write"
        for kind in ("tree", "kept row", "kept id", "pending row", "pending id", "stream row", "dead letter")
    },
    "external": {
        "consumer", "poll_many", "poll", "a flush that receives and sends 10,000 rows: exchanges",
        *(f"{way}: {what}{unit}" for way in ("row by row", "in bulk") for unit in ("", ": processor time")
          for what in ("a header of 50 bytes", "stamps and acks")),
        *(f"segments of {rows}: {what}" for rows in (20, 100)
          for what in ("store of a row, beside vectors", HASH)),
        "all bits of a segment of 40: server", "half of the bits of a segment of 40: server",
        "2 half segments, then full: slowest command",
        "30 open segments: a pass that keeps their clocks", "30 open segments: slowest command of it",
    },
    "peers": {
        f"{peer}: {what}" for peer in TINY["peers"]["only"] for what in ("children completed", "memory")
    },
}  # fmt: skip


def measured(name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """The part of the report, in which nothing is missing and every figure is a number."""
    part = PARTS[name]
    report = program.measure(part, part.module.Sizes(**sizes))
    assert not report["missing"]
    for row in report["rows"]:
        assert len(row["rounds"]) == sizes["rounds"]
        assert all(map(math.isfinite, row["rounds"])), row
        # So few trees take less memory than a server has more or less of by the way.
        assert row["least"] >= 0 or row["name"].endswith("memory"), row
        assert row["least"] <= row["median"] <= row["most"]
        assert row["cpu"] is None or math.isfinite(row["cpu"])
    json.dumps(report, allow_nan=False)
    return report


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TINY)
def test_a_part_yields_the_figures_that_it_promises(name: str) -> None:
    if name in ("updates", "growth") and not shutil.which("redis-benchmark") and not os.environ.get("CI"):
        pytest.skip("redis-benchmark is not on PATH (Debian: redis-tools)")
    names = {row["name"] for row in measured(name, TINY[name])["rows"]}
    if name == "updates":  # on each server that there is
        servers = {row.partition(": ")[0] for row in names}
        assert any(server.startswith("Valkey ") for server in servers)
        assert names == {f"{server}: {row}" for server in servers for row in NAMES[name]}
    else:
        assert names == NAMES[name]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("peer", ["bullmq", "celery", "dramatiq"])
def test_a_peer_does_the_same_work(peer: str) -> None:
    sizes = PARTS["peers"].module.Sizes(rounds=1, only=(peer,), parents=5, workers=1)
    report = program.measure(PARTS["peers"], sizes)
    if any("can't be installed" in reason for reason in report["missing"]):
        pytest.skip(f"its packages can't be had: {report['missing']}")
    assert [row["name"] for row in report["rows"]] == [f"{peer}: children completed", f"{peer}: memory"]
    assert report["rows"][0]["median"] > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_spark_part_runs_the_jobs_of_its_own_program() -> None:
    found = measured("spark", {"rounds": 1, "tuples": (2_000,), "variants": ("words",), "warm_up": 0})["rows"]
    assert [row["name"].removeprefix("words, 2,000 tuples: ") for row in found] == [
        "without", "tracked", "processor time, tracked / without",
    ]  # fmt: skip


def test_ratios_are_medians_of_the_rounds_own_ratios() -> None:
    samples = [Sample("base", value, "x/s", cpu=1.0) for value in (1.0, 2.0, 10.0)] + [
        Sample("fast", value, "x/s", "base", cpu=2.0) for value in (4.0, 4.0, 10.0)
    ]
    base, fast = rows(samples)
    assert (base["median"], base["ratio"], base["cpu_ratio"]) == (2.0, None, None)
    assert (fast["median"], fast["least"], fast["most"]) == (4.0, 4.0, 10.0)
    assert (fast["ratio"], fast["cpu_ratio"], fast["against"]) == (2.0, 2.0, "base")


def test_figures_have_three_or_four_digits_that_matter() -> None:
    assert [shown(value) for value in (12_345.6, 123.45, 1.2345, 0.012345, None)] == [
        "12,346", "123.5", "1.23", "0.0123", "",
    ]  # fmt: skip


def test_a_report_is_kept_as_json_and_shown_as_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    command = ["benchmarks", "single", "--single-trees", "2", "--rounds", "1", "--json", str(file)]
    monkeypatch.setattr("sys.argv", command)
    assert program.main() == 0
    shown_text = capsys.readouterr().out
    report = json.loads(file.read_text())
    assert set(report["machine"]) == {
        "processor", "cores", "memory", "kernel", "Python", "servers", "load at the start",
    }  # fmt: skip
    assert report["parts"]["single"]["command"] == (
        "uv run python -m benchmarks single --single-rounds 1 --single-trees 2"
    )
    assert "single  PING, p50: " in shown_text
    monkeypatch.setattr("sys.argv", ["benchmarks", "--markdown", str(file)])
    assert program.main() == 0
    assert capsys.readouterr().out.strip() == markdown(report)
    assert "| PING, p50 | " in markdown(report)


class Broken:
    """A part that measures one thing and then can't go on."""

    TITLE = "broken"

    @dataclass(frozen=True)
    class Sizes:
        rounds: int = 1

    @staticmethod
    def samples(_: Any) -> Iterator[Sample]:
        yield Sample("one", 1.0, "x")
        raise RuntimeError("the server is gone")


def test_what_was_measured_before_a_part_broke_is_kept_and_the_reason_reported() -> None:
    report = program.measure(program.Part("broken", Broken), Broken.Sizes())  # type: ignore[arg-type]
    assert [row["name"] for row in report["rows"]] == ["one"]
    assert report["missing"] == ["RuntimeError: the server is gone"]


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["--rounds", "0"],
        ["--rounds", "-1"],
        ["--growth-dimensions", "time"],
        ["--peers-only", "streams,kafka"],
        ["--peers-workers", "0"],
        ["--single-trees", "many"],
        ["--tick-slab", "4097"],
        ["--tick-before", "-1"],
        ["--sizing-writes", "0"],
        ["--updates-finished", "100"],
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *words])
    with pytest.raises(SystemExit):
        program.main()
    said = capsys.readouterr()
    assert words[-1].removeprefix("streams,") in said.err
    assert not said.out


@pytest.mark.parametrize(
    ("name", "given", "value", "expected"),
    [
        ("api", "--requests", "0", "a whole number of 1 or more"),
        ("drpc", "--calls", "0", "a whole number of 1 or more"),
        ("drpc", "--rounds", "-1", "a whole number of 0 or more"),
        ("ledger", "--rounds", "0", "a whole number of 1 or more"),
        ("lines", "--quick-parents", "-5", "a whole number of 1 or more"),
        ("marks", "--trees", "1000", "a whole number of 1,024 or more"),
        ("soak", "--minutes", "nan", "a number over 0"),
        ("soak", "--tolerance", "-0.1", "a number of 0 or more"),
        ("spark", "--pairs", "1.5", "a whole number of 1 or more"),
        ("streaming", "--rates", "1000,0", "a whole number of 1 or more"),
        ("streaming", "--seconds", "0", "a number over 0"),
        ("tick", "--slab", "5000", "a whole number from 1 to 4,096"),
        ("volume", "--pending", "0", "a whole number of 1 or more"),
        ("why", "--slabs", "0", "a whole number of 1 or more"),
    ],
)
def test_programs_refuse_sizes_that_make_no_sense(
    name: str,
    given: str,
    value: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", [name, f"{given}={value}"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert f"argument {given}: expected {expected}, got {value.rpartition(',')[2]!r}" in said.err
    assert not said.out


def test_what_a_call_costs_is_measured() -> None:
    figures = drpc.run(calls=1, many=40, callers=3)
    assert figures.keys() == {
        "ping_ms", "rested_ping_ms", "call_ms", "call_pings", "call_rested_pings", "call_flights",
        "call_program_ms", "call_server_ms", "together_per_second", "side_by_side_per_second",
    }  # fmt: skip
    assert all(value > 0 for value in figures.values())


def test_what_lines_cost_is_measured() -> None:
    only = ("flow", "bytes", "in-flight", "release")
    sizes = lines.Sizes(
        rounds=1, only=only, requests=20, tuples=3, held=64, few=2, many=40, measured=2, releases=2
    )
    figures = {
        row["name"]: row for row in rows(one for one in lines.samples(sizes) if isinstance(one, Sample))
    }
    ratios = {name for name, row in figures.items() if row["ratio"]}
    assert ratios == {
        "flow over a line, seconds", "flow over a line, processor", "in flight: 40",
        "last ack until readers see the bundle",
    }  # fmt: skip
    assert figures.keys() - ratios == {
        "flow over plain streams, seconds", "flow over plain streams, processor", "in flight: 2", "PING",
        "groups of 1,024: tracked", "groups of 1,024: a row waits in a gather",
        "groups of 1: tracked", "groups of 1: a row waits in a gather",
    }  # fmt: skip
    # Two threads see the last ack and the bundle: of two moments that are so near, either may be seen first.
    del figures["last ack until readers see the bundle"]
    assert [row for row in figures.values() if not row["median"] > 0] == []
