"""`python -m benchmarks.soak` at a tiny size: it does what it says, and tells flat from growing."""

import json
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.misuse import KINDS, Sizes
from benchmarks.soak import MIB, Sample, judge

TINY = Sizes(minutes=0.1, timeout=1.0, mark=200, records=20, calls=50, writers=500, tolerance=0.5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_stays_flat_whatever_clients_do_that_they_should_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--{name}={getattr(TINY, name)}" for name in TINY.__dataclass_fields__]
    file = tmp_path / "soak.json"
    monkeypatch.setattr("sys.argv", ["soak", *words, "--json", str(file)])
    status = soak.main()
    shown = capsys.readouterr().out
    assert status == 0, shown
    kinds = json.loads(file.read_text())["kinds"]
    assert kinds.keys() == KINDS.keys()
    assert all(f"| {kind} | store | " in shown for kind in KINDS)
    counters = {kind: one["counters"] for kind, one in kinds.items()}
    assert counters["overload"]["rejected"] > TINY.mark < counters["overload"]["expired"]
    assert counters["orphans"]["orphaned"] > TINY.mark
    assert counters["unconfirmed"]["acked"] <= counters["unconfirmed"]["tracked"] == TINY.mark
    assert counters["never-acked"]["expired"] > TINY.mark
    assert counters["writers"]["duplicates"] > 0
    for one in kinds.values():
        assert sum(sample["settled"] for sample in one["samples"]) >= soak.LEAST_SAMPLES


def sampled(*stores: int, settled: bool = True) -> list[Sample]:
    return [Sample(at, settled, store, 50, 80 * MIB, {}) for at, store in enumerate(stores)]


def test_what_grows_is_not_flat_and_what_it_grew_before_its_bound_does_not_count() -> None:
    grown = sampled(MIB, 20 * MIB, settled=False)
    level = judge(grown + sampled(*[20 * MIB] * 40), 0.05)
    assert [level[name]["flat"] for name in soak.FIGURES] == [True] * 3
    assert (level["store"]["first"], level["store"]["second"]) == (MIB, 20 * MIB)
    rising = judge(grown + sampled(*[(20 + n // 10) * MIB for n in range(40)]), 0.05)
    assert not rising["store"]["flat"]
    assert rising["keys"]["flat"]
    report = {
        "kinds": {"writers": {"figures": rising, "counters": {"late": 3}, "minutes": 1.0}},
        "broken": {},
    }
    assert not soak.flat(report)
    assert "| writers | store | 1.00 MiB | 21.00 MiB | 23.00 MiB | 1.095 | **no** |" in soak.table(report)


def test_a_kind_that_breaks_is_reported_and_is_not_flat() -> None:
    report = soak.report_of(["orphans"], Sizes(minutes=0.01, mark=1, warm=0.1))
    assert list(report["broken"]) == ["orphans"]
    assert "high_water_mark" in report["broken"]["orphans"]
    assert not soak.flat(report)
    assert "- orphans broke: ValidationError" in soak.table(report)


def test_a_kind_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--kinds", "overload,drought"])
    with pytest.raises(SystemExit):
        soak.main()
    assert "drought" in capsys.readouterr().err
