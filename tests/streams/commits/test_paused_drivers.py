"""Two drivers of one commit: one is stopped before a request, the other finishes, all is settled and
forgotten, and a day later the first goes on. It changes nothing any more."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import UnknownDeadLetter
from acker.inspect.operate.removal import remove
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, Request
from acker.streams import StreamReader
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters import dead_letters
from acker.streams.log.subscriptions import RERUN_TTL
from acker.streams.sources import roots
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import replays, settler
from acker.streams.staging import staging
from acker.streams.staging.effects import EFFECT
from acker.streams.staging.staging import FAILED, Staging
from tests.helpers.builders.kept_rows import consume, letters, lines, pending, rows
from tests.helpers.builders.streaming import counters, stage, take
from tests.helpers.faults.paused_drivers import one_by_one

pytestmark = pytest.mark.slow

HOW = SpoutOptions("s", "lines", "id", attempts=2)
ROWS = 8
Driver = Callable[[], Operation[object]]


def spout_write(ledger: Ledger) -> Driver:
    """Rows that are emitted with trees of their own, one of them refused."""
    table = lines(ROWS).set_column(0, "id", pa.array([None, *map(str, range(1, ROWS))]))
    how, batches = Staging("lines", rows=ROWS // 2), table.to_batches()
    made, staged = ledger.run(replays.emit_recorded(ledger.core, HOW, how, batches))
    return lambda: commit.commit(ledger.core, "w", 0, Commit((staged,), made))


def track(ledger: Ledger) -> Driver:
    """Roots of one piece, and two segments that a bolt has made of them."""
    made = ledger.run(roots.stage(ledger.core, HOW, Staging("lines"), lines(ROWS).to_batches()))
    staged = stage(ledger, made[0].anchors(), "lines", rows=ROWS // 2)
    return lambda: commit.commit(ledger.core, "w", 0, Commit((staged,), made))


def fail_all(ledger: Ledger) -> Driver:
    """A batch that fails, with what it has read and what it was to track."""
    StreamSpout(ledger, HOW).write(lines(ROWS))
    made = ledger.run(roots.stage(ledger.core, HOW, Staging("lines"), lines(ROWS, ROWS).to_batches()))
    what = Commit(inputs=(take(ledger, "lines"), *made), failed="why")
    return lambda: commit.commit(ledger.core, "w", 0, what)


def bolt(ledger: Ledger) -> Driver:
    """A bolt: emits to another stream, fails two rows, has effects. (Rows that are held are the same.)"""
    StreamSpout(ledger, HOW).write(lines(ROWS))
    anchors = [row["_acker"] for row in rows(ledger)]
    digests = [b"%016d" % n for n in range(ROWS)]
    words = pa.table(
        {
            "_acker": pa.array(anchors),
            EFFECT: pa.array(digests, pa.binary()),
            FAILED: pa.array(["bad", "worse", *[None] * (ROWS - 2)], pa.string()),
        }
    )
    failing = Staging("", failures_only=True, effects_horizon=3_600_000)
    staged = ledger.run(staging.stage(ledger.core, failing, words.to_batches()))
    what = Commit((staged, stage(ledger, anchors[2:], "words", rows=3)), (take(ledger, "lines"),))
    return lambda: commit.commit(ledger.core, "w", 0, what)


def replay(ledger: Ledger) -> Driver:
    """A settler that gives rows their second tree."""
    StreamSpout(ledger, HOW).write(lines(ROWS))
    ledger.fail([row["_acker"] for row in rows(ledger)][: ROWS // 2], "bad")
    consume(ledger)
    return lambda: replays.step(ledger.core, "s")


def dead_letter(ledger: Ledger) -> Driver:
    """A dead letter that is replayed."""
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(3))
    ledger.fail([row["_acker"] for row in rows(ledger)], "bad")
    consume(ledger)
    settler.settle(ledger)
    letter = letters(ledger)[0].id
    return lambda: dead_letters.replay(ledger.core, letter)


def go_on(ledger: Ledger, operation: Operation[Any], asked: list[Request]) -> None:
    with suppress(StopIteration, UnknownDeadLetter):
        while True:
            asked = operation.send(ledger.store.send(asked))


def a_day_passes(ledger: Ledger, raw: redis.Redis) -> None:
    """What ticks and times to live forget in a day."""
    for shard in ledger.core.shards:
        raw.delete(*shard.declared([])[7:9])
    for key in list(raw.scan_iter(f"acker:{{{ledger.config.name}*")):
        if 0 < raw.ttl(key) <= RERUN_TTL + 60:
            raw.delete(key)


def settle(ledger: Ledger) -> None:
    consume(ledger)
    consume(ledger, "words")
    settler.settle(ledger)


def account(ledger: Ledger, raw: redis.Redis) -> dict[str, Any]:
    """All that is counted when nothing is under way any more."""
    for _ in range(4):
        settle(ledger)
        ledger.tick(force=True)
    reported = counters(ledger)
    for name in ("duplicates", "rotations"):
        reported.pop(name, None)
    own = keys.Stream(ledger.config.name, "lines"), keys.Stream(ledger.config.name, "words")
    found = {one.entries: raw.hmget(one.subscriptions, "emitted", "acked:0", "late:0") for one in own}
    published = {key.rpartition(b"/")[2]: counts for key, counts in found.items()}
    return {**reported, **pending(ledger), "published": published, "letters": len(letters(ledger))}


@pytest.mark.parametrize(
    ("made", "half"),
    [
        (spout_write, False), (track, True), (track, False), (fail_all, False), (bolt, False),
        (replay, False), (dead_letter, False),
    ],
)  # fmt: skip
def test_a_driver_that_was_stopped_anywhere_changes_nothing_when_all_is_over(
    valkey_url: str, valkey_raw: redis.Redis, made: Callable[[Ledger], Driver], half: bool
) -> None:
    expected: dict[str, Any] = {}
    for after in count():
        ledger = open_ledger(Store(valkey_url), f"after{after}", ackers=2, slab_limit=2)
        driver = made(ledger)
        stopped = one_by_one(driver())
        asked: list[Request] = next(stopped)
        if not expected:  # nobody is stopped
            go_on(ledger, stopped, asked)
            expected = account(ledger, valkey_raw)
            continue
        ended = False
        for _ in range(after - 1):
            try:
                asked = stopped.send(ledger.store.send(asked))
            except StopIteration:
                ended = True
                break
        with suppress(UnknownDeadLetter):
            ledger.run(driver())
        if half:  # of the trees are over
            reader = StreamReader(ledger, "lines")
            next(reader.tables(), None)
            reader.ack()
            settler.settle(ledger)
        else:
            settle(ledger)
        a_day_passes(ledger, valkey_raw)
        if ended:
            assert after > 15
            return
        go_on(ledger, stopped, asked)
        assert account(ledger, valkey_raw) == expected, f"stopped before request {after}: {asked}"
        ledger.run(remove(ledger.config.name, force=True))
