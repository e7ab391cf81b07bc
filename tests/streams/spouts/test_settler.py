"""The settler: what is wrong with one spout, or with a listener, keeps no other spout waiting."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.errors import AckerError, DeadLettersFull, StoreError
from acker.inspect.operate.removal import remove
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.spark import settling
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Reply, Request
from acker.streams.sources import kept_rows
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import lost_trees, settler
from acker.streams.spouts.backoff import SettleProgress
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.settler import Settler
from acker.streams.upkeep.removal import remove_stream
from acker.streams.writer import StreamWriter
from tests.helpers.builders.kept_rows import consume, lines, rows
from tests.helpers.faults.damages import DAMAGES, damage, two

TIMEOUT = 60.0
"""Seconds after which a test gives up."""


@pytest.fixture
def ledger(valkey_url: str) -> Ledger:
    return open_ledger(Store(valkey_url), "t", ackers=2)


def spout(ledger: Ledger, name: str, **how: Any) -> StreamSpout:
    return StreamSpout(ledger, SpoutOptions(name, f"lines-{name}", "id", **how))


def pending(ledger: Ledger, name: str) -> int:
    return ledger.run(kept_rows.pending(ledger.core, name))["pending"]


@pytest.fixture
def stuck(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spout `a` has all the dead letters it may have, and a further one waits."""
    monkeypatch.setattr(config, "DEAD_LETTERS", 1)
    for number in range(2):
        spout(ledger, "a", attempts=1).write(lines(1, first=number))
        anchors = [row["_acker"] for row in rows(ledger, "lines-a")]
        ledger.fail(anchors, "bad")
        consume(ledger, "lines-a")
        if number == 0:
            assert settler.settle(ledger) == Stepped(dead=1)


@pytest.mark.usefixtures("stuck")
def test_a_spout_that_cannot_be_settled_keeps_no_other_from_it(ledger: Ledger) -> None:
    spout(ledger, "b").write(lines(10))
    consume(ledger, "lines-b")
    with pytest.raises(DeadLettersFull, match="spout 'a'"):
        settler.settle(ledger)
    assert (pending(ledger, "a"), pending(ledger, "b")) == (1, 0)
    spout(ledger, "b").write(lines(10))
    consume(ledger, "lines-b")
    Settler(ledger.store, ["t"]).step()
    assert (pending(ledger, "a"), pending(ledger, "b")) == (1, 0)


def test_refused_rows_keep_no_other_from_settling(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """The stream was removed and made anew with other columns while they were pending."""
    spout(ledger, "a").write(lines(2))
    anchors = [row["_acker"] for row in rows(ledger, "lines-a")]
    ledger.run(remove_stream(ledger.core, "lines-a"))
    StreamWriter(ledger, "lines-a").write(pa.table({"other": [1]}))
    ledger.fail(anchors, "bad")
    StreamSpout(ledger, SpoutOptions("a", "more", "id")).write(lines(3, first=2))
    consume(ledger, "more")
    assert settler.settle(ledger, "a") == Stepped(acked=3)
    assert pending(ledger, "a") == 2
    assert settler.settle(ledger, "a") == Stepped()
    assert (
        caplog.text.count("rows of spout 'a' are kept, and not tried again: columns differ from stream") == 1
    )


@pytest.mark.usefixtures("stuck")
def test_a_commit_waits_for_room_of_its_spout_only(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    writer = spout(ledger, "b", max_spout_pending=10)
    writer.write(lines(10))
    consume(ledger, "lines-b")
    writer.write(lines(10, first=10), timeout=TIMEOUT)
    assert pending(ledger, "b") == 10
    [reported] = [text for record in caplog.records if "waits for room" in (text := record.getMessage())]
    assert "outcomes of topology t wait: spout 'a' has 1 dead letters, its most" in reported


def test_one_step_settles_many_failed_records_that_were_written_one_by_one(ledger: Ledger) -> None:
    """Such an entry is of all its slab's trees: of one, and not of as many as a slab may have."""
    for number in range(60):
        spout(ledger, "a", attempts=1).write(lines(1, first=number))
    ledger.fail([row["_acker"] for row in rows(ledger, "lines-a")], "bad")
    assert settler.settle(ledger, steps=1) == Stepped(dead=60)


def test_a_spout_in_trouble_keeps_no_other(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    spouts: list[str] = []
    recover = lost_trees.recover

    def recovers(core: Any, name: str) -> Any:
        if name == "a":
            raise DeadLettersFull("not today")
        spouts.append(name)
        return (yield from recover(core, name))

    for name in ("a", "b"):
        spout(ledger, name).write(lines(5))
        consume(ledger, f"lines-{name}")
    monkeypatch.setattr(lost_trees, "recover", recovers)
    with pytest.raises(DeadLettersFull):
        settler.recover(ledger)
    assert spouts == ["b"]
    assert Settler(ledger.store, ["t"]).step() == 0  # that it settled both it cannot tell
    assert spouts == ["b", "b"]
    assert (pending(ledger, "a"), pending(ledger, "b")) == (0, 0)


def test_outcomes_are_reported_again_by_settling_when_who_is_reported_has_raised(
    valkey_url: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[list[dict[str, Any]]] = []
    taken = threading.Event()

    def once_bad(table: pa.Table) -> None:
        reported.append(table.to_pylist())
        if len(reported) == 1:
            raise ValueError("not today")
        taken.set()

    spout(ledger, "s").write(lines(20))
    consume(ledger, "lines-s")
    with settling(url=valkey_url, topology="t", spout="s", on_outcomes=once_bad):
        assert taken.wait(TIMEOUT)
    assert len(reported[0]) == 20
    assert reported[1] == reported[0]
    assert "outcomes of topology t wait: not today" in caplog.text
    assert pending(ledger, "s") == 0


class Unspeakable(BaseException):
    """An error like an extension's panic; nothing can show it."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


def test_whatever_is_raised_where_outcomes_are_reported_ends_no_settler(
    valkey_url: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    taken, errors = threading.Event(), [SystemExit(3), KeyboardInterrupt(), Unspeakable()]

    def bad(_: pa.Table) -> None:
        if errors:
            raise errors.pop()
        taken.set()

    spout(ledger, "s").write(lines(20))
    consume(ledger, "lines-s")
    with settling(url=valkey_url, topology="t", spout="s", on_outcomes=bad):
        assert taken.wait(TIMEOUT)
    assert "outcomes of topology t wait: Unspeakable" in caplog.text
    assert pending(ledger, "s") == 0


def test_a_function_of_outcomes_that_settles_gets_an_error_in_place_of_waiting_for_itself(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "_LONGEST_STEP", 0.01)
    raised: list[str] = []

    def again(_: pa.Table) -> None:
        for step in (settler_at_work.step, lambda: pool.submit(settler_at_work.step).result()):
            with pytest.raises(AckerError) as refused:
                step()
            raised.append(str(refused.value))

    spout(ledger, "s").write(lines(20))
    consume(ledger, "lines-s")
    settler_at_work = Settler(ledger.store, ["t"], spout="s", on_outcomes=again)
    with ThreadPoolExecutor(1) as pool:
        assert settler_at_work.step() == 20
    assert [text.split(",")[0] for text in raised] == [
        "step: called by on_outcomes", "step: another thread settles"
    ]  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
def test_a_topology_that_cannot_be_read_keeps_no_other_from_being_settled(valkey_url: str, how: str) -> None:
    _, words = two(valkey_url)
    spout(words, "s").write(lines(20))
    consume(words, "lines-s")
    with damage(valkey_url, how):
        assert Settler(words.store).step() == 20
    assert pending(words, "s") == 0


def test_a_spout_whose_counts_cannot_be_read_keeps_no_other_from_being_settled(ledger: Ledger) -> None:
    for name in ("a", "b"):
        spout(ledger, name).write(lines(20))
        consume(ledger, f"lines-{name}")
    counts = keys.Spout("t", "a").counts
    with redis.Redis.from_url(ledger.store.url) as raw:
        raw.rename(counts, b"aside")
        raw.lpush(counts, "of another kind")
        with pytest.raises(StoreError, match="WRONGTYPE"):
            settler.settle(ledger)
        assert pending(ledger, "b") == 0
        raw.rename(b"aside", counts)
    assert settler.settle(ledger).acked == 20


def test_a_settler_follows_a_topology_that_was_made_anew(ledger: Ledger) -> None:
    each = Settler(ledger.store, ["t"])
    assert each.step() == 0
    ledger.run(remove(ledger.config.name, force=True))
    anew = open_ledger(ledger.store, "t", ackers=7)
    for number in range(20):  # each in a slab of its own, which lies in any shard
        spout(anew, "b").write(lines(2, first=2 * number))
    consume(anew, "lines-b")
    assert each.step() == 40
    assert pending(anew, "b") == 0


@pytest.mark.parametrize("ended", ["acked", "replayed", "dead", "told"])
def test_a_settle_takes_four_exchanges(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    options = {"attempts": 1 if ended == "dead" else 9, "outcomes": ended == "told"}
    progress: dict[str, SettleProgress] = {}
    flights, send, here = list[int](), Store.send, threading.get_ident()

    def counted(store: Store, requests: Sequence[Request]) -> list[Reply]:
        # A slow settle has heartbeats, which another thread sends; threads of other tests may still end.
        if store is ledger.store and threading.get_ident() == here:
            flights.append(len(requests))
        return send(store, requests)

    warm = False
    for number in range(60):  # each time, the rows of a further stream are replayed
        warm = number > 1 and len(ledger.core.registries) == ledger.config.ackers
        spout(ledger, "a", **options).write(lines(50, first=50 * number))
        anchors = [row["_acker"] for row in rows(ledger, "lines-a")]
        if ended != "acked":
            ledger.fail(anchors[:40], "bad")
        consume(ledger, "lines-a")
        flights.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Store, "send", counted)
            done = settler.settle(ledger, "a", steps=1, readings=progress)
        assert done.all == len(anchors)
        assert done.replayed == (40 if ended in ("replayed", "told") else 0)
        if warm:  # the first trees of a process in a shard are refused once: it learns the shard's spouts
            break
    assert warm
    assert len(flights) <= 4, flights
