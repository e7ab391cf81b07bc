"""Paused spouts: their new tracks are rejected everywhere, and what they have in flight goes on."""

import re
from contextlib import suppress

import pyarrow as pa
import pytest
import redis

from acker.collectors.topology import Topology
from acker.errors import SpoutPaused, UnknownSpout, ValidationError
from acker.inspect import scripts
from acker.inspect.operate import pauses, removal
from acker.inspect.topology import health
from acker.ledger.calls import idempotence
from acker.ledger.client import Ledger
from acker.ledger.slabs.slabs import NewSlab
from acker.store import keys
from acker.store.operation import flights
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import consume, fail, lines, rows
from tests.helpers.builders.ledgers import Trees, confirm_all, opened

WHY = r"spout 's' of topology 'tested' is paused by ann since 20\S+Z: a bad file"


@pytest.fixture
def ledger(url: str) -> Ledger:
    return opened(url, ackers=2)


def pause(ledger: Ledger, spout: str = "s") -> None:
    ledger.run(pauses.pause(ledger.core, spout, by="ann", reason="a bad file"))


@pytest.mark.cluster
def test_new_tracks_are_rejected_in_all_shards_and_the_rest_goes_on(ledger: Ledger) -> None:
    before = [Trees(2).track(ledger) for _ in range(8)]
    pause(ledger)
    for _ in range(8):
        with pytest.raises(SpoutPaused, match=WHY):
            Trees(1).track(ledger)
    Trees(1).track(ledger, "other")
    before[0].track(ledger)  # it was tracked before: a duplicate
    for trees in before:
        trees.complete(ledger)
    assert confirm_all(ledger) == 16
    [paused] = ledger.run(health.health(ledger.core)).paused
    assert (paused.spout, paused.by, paused.reason, paused.whole) == ("s", "ann", "a bad file", True)
    ledger.run(pauses.resume(ledger.core, "s"))
    ledger.run(pauses.resume(ledger.core, "s"))
    Trees(1).track(ledger)
    assert ledger.run(health.health(ledger.core)).paused == ()


def test_a_resend_of_a_track_before_the_pause_gets_its_reply(ledger: Ledger) -> None:
    trees = Trees(2)
    slab = NewSlab(trees.anchors, trees.values, trees.message_ids)
    ledger.register_spout("s")
    track = ledger.core.track([slab], "s")
    assert ledger.send(track) == ["A"]
    pause(opened(ledger.store.url))
    for call in track.calls:
        call.reply = None
    assert ledger.send(track) == ["A"]
    trees = Trees(2)
    member = NewSlab(trees.anchors, trees.values, trees.message_ids)
    assert ledger.send(ledger.core.track([member], "s.member-2")) == ["P"]


def test_rows_wait_before_they_are_kept_and_replays_go_on(ledger: Ledger) -> None:
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2, backoff=0.0))
    spout.write(lines(3))
    pause(ledger)
    with pytest.raises(SpoutPaused, match=WHY):
        spout.write(lines(2, 3), timeout=0.0)
    fail(ledger, lambda row: row["id"] == 1)
    settler.settle(ledger)
    assert [row["id"] for row in rows(ledger)] == [1]
    consume(ledger)
    settler.settle(ledger)
    ledger.run(pauses.resume(ledger.core, "s"))
    spout.write(lines(2, 3))
    assert sorted(row["id"] for row in rows(ledger)) == [3, 4]


def test_replays_go_on_though_their_message_ids_go_ahead_of_the_track(ledger: Ledger) -> None:
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2, backoff=0.0))
    long_ids = [f"{number:0900}" for number in range(400)]
    spout.write(pa.table({"id": long_ids}))
    pause(ledger)
    fail(ledger, lambda _: True)
    settler.settle(ledger)
    assert sorted(row["id"] for row in rows(ledger)) == long_ids


def test_a_half_done_pause_is_seen_and_mended_by_the_same_call(ledger: Ledger) -> None:
    ledger.register_spout("s")
    record = ledger.run(pauses.pause(ledger.core, "s", by="ann", reason="x" * 2_000)).dump()
    ledger.run(pauses.resume(ledger.core, "s"))
    ledger.run(idempotence.submit(ledger.core, [scripts.pause_spout(ledger.core.shards[1], "s", record)]))
    [trouble] = ledger.run(health.health(ledger.core)).troubles
    assert (trouble.code, trouble.severity) == ("paused", "look")
    assert trouble.text.startswith("spout s is paused in part by ann since 20")
    pause(ledger)
    judged = ledger.run(health.health(ledger.core))
    assert (judged.severity, judged.troubles) == ("muted", ())
    [muted] = judged.muted
    assert muted.trouble.text == "spout s is paused"
    assert (muted.mute.by, muted.mute.reason) == ("ann", "a bad file")


def test_a_late_copy_of_a_pause_does_not_pause_a_resumed_spout(ledger: Ledger) -> None:
    ledger.register_spout("s")
    spout = keys.Spout("tested", "s")
    copies = [scripts.pause_spout(shard, "s", "[1]") for shard in ledger.core.shards]
    ledger.run(idempotence.submit(ledger.core, copies))
    kept = scripts.pause_kept(spout, b"", "[1]", 0, (b"", 1 << 52), (0, 0))
    assert ledger.store.send([kept]) == [1]
    ledger.run(pauses.resume(ledger.core, "s"))
    ledger.run(ledger.core.ask(copies))
    assert ledger.store.send([kept]) == [0]
    assert ledger.run(health.health(ledger.core)).paused == ()


def test_a_spout_of_the_name_of_a_removed_one_is_not_paused(ledger: Ledger) -> None:
    ledger.register_spout("s")
    pause(ledger)
    ledger.run(removal.remove_spout(ledger.core, "s"))
    with pytest.raises(UnknownSpout):
        pause(ledger)
    Trees(1).track(ledger)
    with redis.Redis.from_url(ledger.store.url) as raw:
        assert not raw.exists(keys.Spout("tested", "s").paused)


@pytest.mark.parametrize("paused_within", [False, True])
def test_a_spout_that_is_removed_while_it_is_paused_leaves_no_pause(
    ledger: Ledger, paused_within: bool
) -> None:
    """At each exchange of a pause the spout is removed, or it is paused at each exchange of its removal."""
    for step in range(100):
        ledger, other = (opened(ledger.store.url, ackers=2) for _ in range(2))
        ledger.register_spout("s")
        calls = [pauses.pause(ledger.core, "s", by="ann"), removal.remove_spout(other.core, "s")]
        outer, inner = reversed(calls) if paused_within else calls
        requests = next(outer)
        for at in range(100):
            if at == step:
                with suppress(UnknownSpout):
                    ledger.run(inner)
            try:
                parts = flights(requests)
                requests = outer.send([reply for part in parts for reply in ledger.store.send(part)])
            except (StopIteration, UnknownSpout):
                break
        if at < step:
            break
        with redis.Redis.from_url(ledger.store.url) as raw:
            assert not raw.exists(keys.Spout("tested", "s").paused), step
            assert not any(raw.hexists(shard.counters, "paused:s") for shard in ledger.core.shards), step
    assert 3 < step < 99


def test_a_reason_of_several_lines_is_one_line_of_a_log(ledger: Ledger) -> None:
    ledger.register_spout("s")
    ledger.run(pauses.pause(ledger.core, "s", by="ann", reason="bad\nERROR all is lost"))
    with pytest.raises(SpoutPaused, match=r"Z: bad ERROR all is lost$"):
        Trees(1).track(ledger)


def test_an_outcome_of_a_paused_spout_says_by_whom_and_why(valkey_url: str) -> None:
    with Topology(valkey_url, "tested", ackers=1) as topology:
        spout = topology.spout("s")
        spout.emit("before")
        topology.flush()
        topology.pause_spout("s", by="ann", reason="a bad file")
        spout.emit("after")
        topology.flush()
        [outcome] = spout.outcomes(timeout=5.0)
        assert (outcome.message_id, outcome.status) == (b"after", "rejected")
        assert re.fullmatch(WHY, outcome.reason)
        topology.resume_spout("s")
        topology.spout("o", observe=True).emit("seen")
        with pytest.raises(ValidationError, match="only observes"):
            topology.pause_spout("o.observed")
