"""Effects that are remembered, so that a row has its own once: on real servers, without Spark."""

import secrets
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis

from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Request, command
from acker.streams.commits import commit, holding
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.streams.staging import effects, scripts, staging
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.staging import FAILED, Staged, Staging
from tests.helpers.builders.streaming import emit, run_cut, take
from tests.helpers.faults.cuts import script_by_script
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)

HOUR = 3_600_000


def digests(number: int) -> list[bytes]:
    return [secrets.token_bytes(effects.DIGEST_BYTES) for _ in range(number)]


def known(ledger: Ledger, found: list[bytes], horizon: int = HOUR, but: effects.By | None = None) -> int:
    return len(ledger.run(effects.find_recorded(ledger.core, horizon, found, but))[0])


def stage(ledger: Ledger, digests: list[bytes], failed: list[str | None], horizon: int | None) -> Staged:
    """A task that lets rows through (horizon), or one that fails some of them after that (None)."""
    rows = pa.table(
        {
            "_acker": pa.array([1] * len(digests), pa.int64()),
            EFFECT: pa.array(digests, pa.binary()),
            FAILED: pa.array(failed, pa.string()),
        }
    )
    how = Staging("", failures_only=True, effects_horizon=horizon)
    return ledger.run(staging.stage(ledger.core, how, rows.to_batches()))


def record(ledger: Ledger, horizon: int, had: list[bytes]) -> None:
    staged_id = ledger.run(effects.stage(ledger.core, 60, had))
    ledger.run(effects.record(ledger.core, horizon, staged_id, ("writer", 0)))


def test_effects_are_known_once_a_commit_recorded_them_and_not_before(ledger: Ledger) -> None:
    had = digests(5000)
    staged = stage(ledger, had, [None] * 5000, HOUR)
    assert known(ledger, had) == 0
    ledger.run(commit.commit(ledger.core, "writer", 0, Commit((staged,))))
    assert known(ledger, had + digests(100)) == 5000
    assert known(ledger, had, 2 * HOUR) == 0
    _, fullest = ledger.run(effects.find_recorded(ledger.core, HOUR, []))
    assert 5000 / 3 <= fullest < 2500


def test_effects_of_rows_that_failed_are_not_recorded(ledger: Ledger) -> None:
    had = digests(6)
    staged = stage(ledger, had, ["null key", *[None] * 5], HOUR)
    later = stage(ledger, had[2:5], ["bad", None, "bad"], None)
    ledger.run(commit.commit(ledger.core, "writer", 0, Commit((staged, later))))
    assert [known(ledger, [one]) for one in had] == [0, 1, 0, 1, 0, 1]


def test_a_batch_whose_commit_a_node_has_lost_gets_its_rows_again(ledger: Ledger) -> None:
    """A sink that overwrites what the batch has written would lose them otherwise."""
    first, second = digests(3000), digests(500)
    name = ledger.config.name

    def committed(number: int, had: list[bytes]) -> None:
        staged = stage(ledger, had, [None] * len(had), HOUR)
        ledger.run(commit.commit(ledger.core, "writer", number, Commit((staged,))))

    committed(0, first)
    ledger.store.send([command("UNLINK", keys.commits(name, "writer"))])
    assert known(ledger, first, but=("writer", 0)) == 0
    assert known(ledger, first) == known(ledger, first, but=("another", 0)) == 3000
    assert known(ledger, first, but=("writer", 1)) == 3000
    committed(0, first)
    committed(1, second)
    assert known(ledger, first + second, but=("writer", 1)) == 3000
    late = effects.requests(ledger.core, HOUR, first, effects_times(ledger), ("writer", 0))
    ledger.store.send(late)
    assert known(ledger, first + second, but=("writer", 1)) == 3000


def effects_times(ledger: Ledger) -> list[Any]:
    return ledger.store.send(effects.asking_times(ledger.core))


def test_what_is_not_committed_is_forgotten(ledger: Ledger, raw: "redis.Redis") -> None:
    staged = stage(ledger, digests(3), [None] * 3, HOUR)
    assert len(list(raw.scan_iter("*effects*"))) == 1
    ledger.run(holding.discard(ledger.core, Commit((staged,))))
    assert not list(raw.scan_iter("*effects*"))


def test_a_commit_cut_anywhere_records_the_same_effects(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script_by_script(monkeypatch)
    for after in count():
        ledger = open_ledger(Store(url), f"cut{after}", ackers=2)
        emit(ledger, 10)
        had = digests(40)
        staged = stage(ledger, had, [None] * 40, HOUR)
        later = stage(ledger, had[:7], ["bad"] * 7, None)
        what = Commit((staged, later), (take(ledger, "lines"),))
        cut = run_cut(ledger, commit.commit(ledger.core, "writer", 0, what), after)
        assert ledger.run(commit.commit(ledger.core, "writer", 0, what))
        assert known(ledger, had) == 33
        assert known(ledger, had[:7]) == 0
        if not cut:
            assert after > 5
            return


@pytest.mark.one_server
def test_an_effect_is_remembered_for_its_horizon_and_is_gone_after_one_and_a_half(ledger: Ledger) -> None:
    """Horizons of seconds, on the server's own clock."""
    had = digests(300)
    record(ledger, 2000, had[:200])
    record(ledger, 2000, had[100:])
    started = _server_time(ledger)
    last = started
    while known(ledger, had, 2000) == 300:
        last = _server_time(ledger)
        assert last - started < 3.5
    assert last - started > 1.9
    wait_until(lambda: known(ledger, had, 2000) == 0, timeout=3.5 - (last - started) + 1)
    _, fullest = ledger.run(effects.find_recorded(ledger.core, 2000, []))
    assert fullest == 0


def test_a_call_that_comes_in_another_generation_changes_nothing(ledger: Ledger) -> None:
    shard = ledger.core.shards[0]
    count, own = shard.effects(HOUR, 0, "count"), shard.effects(HOUR, 0, 0)
    latest = shard.latest_effects(HOUR, "writer")
    request = scripts.record_effects(count, own, latest, (HOUR // 2, 12345), 0, [b"x" * 16])
    assert ledger.store.send([request]) == [-1]
    assert known(ledger, [b"x" * 16]) == 0


def test_a_segment_holds_no_column_of_digests(ledger: Ledger) -> None:
    rows = pa.table({"word": ["a", "b"], "_acker": np.arange(2), EFFECT: digests(2)})
    ledger.run(schemas.record(ledger.core, "words", rows.drop_columns(EFFECT).schema))
    staged = ledger.run(staging.stage(ledger.core, Staging("words"), rows.to_batches()))
    assert not staged.effects + staged.released
    assert staged.segments[0].rows == 2


def test_a_topology_without_tracking_remembers_effects_too(url: str) -> None:
    ledger = open_ledger(Store(url), "untracked", ackers=0)
    had = digests(10)
    record(ledger, HOUR, had)
    assert known(ledger, had) == 10


def _server_time(ledger: Ledger) -> float:
    [(seconds, micros)] = ledger.store.send([Request(b"t", ["TIME"])])
    return int(seconds) + int(micros) / 1e6
