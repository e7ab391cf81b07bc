"""The latency histogram: the scripts have the same buckets, and percentiles lie where the samples do."""

import random
import re

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from acker.ledger.outcomes.latency_histogram import PER_DOUBLING, bounds, percentile
from acker.store import scripts
from tests.helpers.models.latencies import bucket_of


@given(st.integers(0, 2**32))
def test_a_latency_lies_in_the_bounds_of_its_bucket(milliseconds: int) -> None:
    low, high = bounds(bucket_of(milliseconds))
    slack = (milliseconds + 1) * 1e-9
    assert low - slack <= milliseconds <= high + slack
    assert high + 1 <= (low + 1) * 2 ** (1 / PER_DOUBLING) * 1.000001


def test_buckets_ascend_with_no_gap() -> None:
    for bucket in range(300):
        assert bounds(bucket)[1] == pytest.approx(bounds(bucket + 1)[0])
    found = [bucket_of(milliseconds) for milliseconds in range(5000)]
    assert found == sorted(found)


def test_the_scripts_count_in_the_same_buckets(raw: "redis.Redis") -> None:
    text = scripts.get("update").text
    [formula] = re.findall(r"function outcomes.latency_bucket\(ms\)\n.*?\n  end\n", text, re.DOTALL)
    script = f"local floor, outcomes = math.floor, {{}}\n{formula}"
    script += "for i = 1, #ARGV do ARGV[i] = outcomes.latency_bucket(ARGV[i]) end\n"
    sample = [*range(3000), *(2**power + more for power in range(11, 33) for more in (-2, -1, 0, 1))]
    assert raw.eval(script + "return ARGV", 0, *sample) == [
        bucket_of(milliseconds) for milliseconds in sample
    ]


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({3: 0}, 0.5) is None


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 0.95, 0.99, 1.0])
def test_percentiles_are_within_a_tenth_of_the_samples(fraction: float) -> None:
    chance = random.Random(5)
    sample = sorted(int(chance.lognormvariate(6, 1)) + 20 for _ in range(5000))
    counts: dict[int, int] = {}
    for milliseconds in sample:
        counts[bucket_of(milliseconds)] = counts.get(bucket_of(milliseconds), 0) + 1
    found = percentile(counts, fraction)
    assert found is not None
    true = sample[min(len(sample) - 1, int(fraction * len(sample)))] / 1000
    assert found == pytest.approx(true, rel=0.1)


@given(st.dictionaries(st.integers(0, 250), st.integers(1, 10**9), min_size=1))
def test_percentiles_ascend_and_stay_within_what_was_counted(counts: dict[int, int]) -> None:
    found = [percentile(counts, fraction / 20) or 0.0 for fraction in range(21)]
    assert found == sorted(found)
    assert found[0] >= bounds(min(counts))[0] / 1000 - 1e-9
    assert found[-1] <= bounds(max(counts))[1] / 1000 + 1e-9
