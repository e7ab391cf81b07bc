"""The latency histogram: fixed buckets on a logarithmic scale, eight to each doubling: 9 % of error at most.

The scripts write it (lua/ledger/includes/outcomes.lua); here it is read. The idea is HdrHistogram's.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from acker.errors import UnreadableRecord
from acker.store.operation import Reply
from acker.store.replies import pairs, whole

PER_DOUBLING = 8
MOST_BUCKET = 255
"""The last bucket: of latencies of 45 days and more."""


def bounds(bucket: int) -> tuple[float, float]:
    """The latencies of a bucket in milliseconds: from, and up to but without."""
    return 2 ** (bucket / PER_DOUBLING) - 1, 2 ** ((bucket + 1) / PER_DOUBLING) - 1


def counts(reply: Reply) -> list[tuple[int, int]]:
    """The buckets of a stored histogram and the trees in each. Raises UnreadableRecord."""
    buckets = []
    for name, value in pairs(reply).items():
        bucket, trees = whole(name, "a latency's bucket"), whole(value, "a latency's count")
        if bucket < 0 or trees < 0:
            raise UnreadableRecord(f"a latency: expected numbers from 0, got {trees} in bucket {bucket}")
        buckets.append((min(bucket, MOST_BUCKET), trees))
    return buckets


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, of trees; null where there were none."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def from_histogram(cls, counts: Mapping[int, int]) -> "Latency":
        """The latencies of a histogram."""
        return cls(*(percentile(counts, fraction) for fraction in (0.5, 0.95, 0.99)))


def percentile(counts: Mapping[int, int], fraction: float) -> float | None:
    """The latency in seconds with `fraction` (0 to 1) of all latencies below it; None if there are none.

    It is interpolated linearly between the bounds of its bucket.
    """
    total = sum(counts.values())
    if total == 0:
        return None
    rank = fraction * total
    passed = 0
    for bucket in sorted(counts):
        if passed + counts[bucket] >= rank:
            low, high = bounds(bucket)
            return (low + (high - low) * max(0.0, rank - passed) / counts[bucket]) / 1000
        passed += counts[bucket]
    return bounds(max(counts))[1] / 1000


def percentiles(
    counts: npt.NDArray[np.float64], buckets: npt.NDArray[np.int64], fractions: Sequence[float]
) -> list[list[float | None]]:
    """`percentile` for each fraction, and for each row of a matrix whose columns are these buckets."""
    passed = np.cumsum(counts, axis=1)
    totals = passed[:, -1]
    rows = np.arange(len(counts))
    result: list[list[float | None]] = []
    for fraction in fractions:
        rank = np.maximum(fraction * totals, 1e-9)  # the first tree, and not the first bucket
        place = (passed < rank[:, None]).argmin(axis=1)
        inside = counts[rows, place]
        before = passed[rows, place] - inside
        bucket = buckets[place]
        low, high = 2 ** (bucket / PER_DOUBLING) - 1, 2 ** ((bucket + 1) / PER_DOUBLING) - 1
        share = np.divide(np.maximum(0, rank - before), inside, out=np.zeros(len(counts)), where=inside > 0)
        seconds = (low + (high - low) * share) / 1000
        result.append(
            [value if total else None for value, total in zip(seconds.tolist(), totals.tolist(), strict=True)]
        )
    return result
