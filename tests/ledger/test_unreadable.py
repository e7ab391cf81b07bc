"""Records that a newer version or a hand has left: a typed error, a count, and calls that go on."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.collectors.topology import Topology
from acker.errors import UnreadableRecord
from acker.inspect.trees import failures, pages
from acker.ledger.client import Ledger
from acker.ledger.ids import Ids
from acker.ledger.outcomes.outcomes import Confirmation, digest
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.trees import trees as ledger_trees
from acker.streams import StreamReader
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.log import schemas
from acker.streams.staging import staging
from acker.streams.staging.staging import Staged, Staging
from tests.helpers.builders.ledgers import Trees, confirm_all, counted, opened, reported
from tests.helpers.faults.unreadable import (
    BROKEN,
    break_header,
    counter,
    expire,
    first,
    slab_of,
    states,
    together,
)
from tests.helpers.models.ledger_state import shard_key

pytestmark = pytest.mark.cluster(slow=True, first=True)


# A call that names several slabs, one of which cannot be read


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("count", [1, 5])
def test_fails_resets_and_tracks_pass_over_unreadables(url: str, raw: Any, how: str, count: int) -> None:
    ledger = opened(url)
    members = [Trees(count).track(ledger) for _ in range(3)]
    break_header(ledger, raw, members[1], how)
    anchors, _ = together(members)
    ledger.tick(force=True)
    with pytest.raises(UnreadableRecord) as caught:
        ledger.reset_timeout(anchors)
    assert caught.value.anchors == (first(members[1]),)
    nursery = raw.smembers(ledger.core.shards[0].bucket(1))
    assert nursery == {slab_of(members[0]), slab_of(members[2])}
    fresh = Trees(count)
    slabs = [NewSlab(one.anchors, one.values, one.message_ids) for one in (*members, fresh)]
    assert ledger.track_slabs(slabs, spout="s") == ["D", "U", "D", "A"]
    fail = ledger.core.fail(anchors, b"bad")
    for _ in range(2):
        with pytest.raises(UnreadableRecord) as caught:
            ledger.send(fail)
        assert caught.value.anchors == (first(members[1]),)
        for call in fail.calls:
            call.reply = None
    assert states(ledger, *members) == {"failed": 2 * count}
    assert ledger.counters()["failed"] == 2 * count


def test_what_waits_for_a_track_and_is_unreadable_is_not_tracked_half(url: str, raw: Any) -> None:
    ledger = opened(url)
    members = [Trees(3) for _ in range(3)]
    ledger.fail(np.concatenate([one.anchors[:1] for one in members]), "early")
    raw.hset(shard_key(ledger, 0, "failures"), slab_of(members[1]), b"\x00\x00\xff")
    slabs = [NewSlab(one.anchors, one.values, one.message_ids) for one in members]
    assert ledger.track_slabs(slabs, spout="s") == ["A", "U", "A"]
    with pytest.raises(UnreadableRecord):
        ledger.fail(np.concatenate([one.anchors[1:2] for one in members]), "late")
    assert states(ledger, *members) == {"failed": 4}
    with pytest.raises(UnreadableRecord):
        members[1].track(ledger)
    expire(ledger)
    assert counter(ledger, raw, "unreadable") == 1
    assert counter(ledger, raw, "waiting") == 0


def test_a_commit_goes_on_past_what_is_unreadable(url: str, raw: Any) -> None:
    ledger = opened(url)
    members = [Trees(count).track(ledger) for count in (1, 5, 400, 1, 5, 400)]
    for bad in members[:3]:
        break_header(ledger, raw, bad, "newer")
    staged = stage(ledger, together(members)[0])
    assert ledger.run(commit.commit(ledger.core, "writer", 0, Commit((staged,))))
    for one in members[3:]:
        one.complete(ledger)
    assert states(ledger, *members) == {}  # their tuples in the stream are still to be acked
    assert StreamReader(ledger, "words").ack_all() == 1
    assert states(ledger, *members) == {"acked": 406}


def test_staged_vectors_that_are_unreadable_are_not_applied_in_part(url: str, raw: Any) -> None:
    ledger = opened(url)
    members = [Trees(count).track(ledger) for count in (1, 5, 400)]
    staged = stage(ledger, together(members)[0])
    [key] = raw.scan_iter(b"*staged*")
    field = b"counts:1" if raw.hget(key, b"counts:1") else b"vectors:1"
    whole = raw.hget(key, field)
    raw.hset(key, field, b"\xff")  # of the second chunk: the first can be applied
    with pytest.raises(UnreadableRecord):
        ledger.run(commit.commit(ledger.core, "writer", 0, Commit((staged,))))
    raw.hset(key, field, whole)
    assert ledger.run(commit.commit(ledger.core, "writer", 0, Commit((staged,))))
    for one in members:
        one.complete(ledger)
    assert StreamReader(ledger, "words").ack_all() == 1
    assert states(ledger, *members) == {"acked": 406}


def stage(ledger: Ledger, anchors: Ids) -> Staged:
    rows = pa.table({"word": [f"w{n}" for n in range(len(anchors))], "_acker": pa.array(anchors, pa.int64())})
    ledger.run(schemas.record(ledger.core, "words", rows.schema))
    return ledger.run(staging.stage(ledger.core, Staging("words"), rows.to_batches()))


def test_a_writer_whose_last_call_is_unreadable_gets_a_typed_error(url: str, raw: Any) -> None:
    ledger = opened(url)
    trees = Trees(3).track(ledger)
    key = shard_key(ledger, 0, "writers")
    for writer in raw.hkeys(key):
        raw.hset(key, writer, b"nonsense")
    with pytest.raises(UnreadableRecord):
        trees.complete(ledger)
    assert states(ledger, trees) == {}


# The tick


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("count", [1, 5])
def test_a_slab_that_is_unreadable_does_not_keep_the_others_from_expiring(
    url: str, raw: Any, caplog: pytest.LogCaptureFixture, how: str, count: int
) -> None:
    ledger = opened(url, high_water_mark=2 * count)
    bad, good = Trees(count).track(ledger), Trees(count).track(ledger)
    break_header(ledger, raw, bad, how)
    expire(ledger)
    assert {status for _, status, _ in reported(ledger, good)} == {"expired"}
    assert f"slab {slab_of(bad).hex()} of shard 0 cannot be read" in caplog.text
    assert counter(ledger, raw, "unreadable") == 1
    counted(ledger, tracked=2 * count, expired=count)
    expire(ledger)
    # Nothing of it is left that could be taken for a tree, or that takes room from others.
    assert confirm_all(ledger) == count
    assert ledger.run(ledger_trees.tree(ledger.core, first(bad))) is None
    Trees(2 * count).track(ledger)
    assert raw.hlen(shard_key(ledger, 0, "slabs")) == 1


def test_a_vector_or_a_failure_that_is_unreadable_is_dropped_too(url: str, raw: Any) -> None:
    ledger = opened(url)
    odd, cut, early, good = Trees(3).track(ledger), Trees(3).track(ledger), Trees(2), Trees(3).track(ledger)
    ledger.fail(early.anchors[:1], "early")
    vector = ledger.core.shards[0].vector
    raw.append(vector(slab_of(odd)), b"odd")
    raw.set(vector(slab_of(cut)), cut.values[:1].tobytes())
    raw.hset(shard_key(ledger, 0, "failures"), slab_of(early), b"\x00\x00\xff")
    expire(ledger)
    assert len(reported(ledger, good)) == 3
    assert counter(ledger, raw, "unreadable") == 3
    assert counter(ledger, raw, "waiting") == 0
    assert confirm_all(ledger) == 3
    assert counter(ledger, raw, "outstanding") == 0


@pytest.mark.parametrize("broken", [b"", b"\x01", b"\xff\xff" * 5, b"\x01\x00" * 5 + b"abcdefg"])
def test_message_ids_that_are_unreadable_keep_no_outcome_back(url: str, raw: Any, broken: bytes) -> None:
    ledger = opened(url)
    key = ledger.core.shards[0].message_ids
    members = [Trees(5).track(ledger) for _ in range(3)]
    for one in members[:2]:
        raw.hset(key, slab_of(one), broken)
    ledger.fail(np.concatenate([one.anchors[1:2] for one in members]), "bad")  # some of a slab
    expire(ledger)
    assert states(ledger, *members) == {"failed": 3, "expired": 12}
    named = ledger.message_ids([slab_of(one) for one in members])
    assert named == {slab_of(members[2]): members[2].message_ids}
    kept = ledger.run(failures.page(ledger.core, limit=100)).trees
    assert {tree.anchor for tree in kept} >= set(members[2].anchors.tolist())
    assert ledger.run(pages.find(ledger.core, members[2].message_ids[0])).trees[0].anchor == first(members[2])
    assert counter(ledger, raw, "unreadable") == 2
    assert confirm_all(ledger) == 15
    assert counter(ledger, raw, "outstanding") == 0


# Outcomes


def test_an_outcome_that_is_unreadable_is_dropped_and_the_spout_goes_on(url: str, raw: Any) -> None:
    ledger = opened(url)
    members = [Trees(3).track(ledger) for _ in range(3)]
    for one in members:
        one.complete(ledger)
    stream = ledger.core.shards[0].outcomes("s")
    entry_id, fields = raw.xrange(stream)[1]
    raw.xdel(stream, entry_id)
    for broken in (
        {"from": "a newer version"},
        fields | {b"whole": fields[b"whole"][:-1]},
        fields | {b"part": b"odd"},
        fields | {b"status": b"forgotten"},
        fields | {b"at": b"9" * 400},
    ):
        raw.xadd(stream, broken)
    assert states(ledger, *members) == {"acked": 6}
    assert raw.xlen(stream) == 2
    assert counter(ledger, raw, "unreadable") == 5
    assert confirm_all(ledger) == 6
    # It says of which trees it is, so these take no room any more.
    assert counter(ledger, raw, "outstanding") == raw.hlen(shard_key(ledger, 0, "slabs")) == 0


def test_an_outcome_is_dropped_where_it_becomes_unreadable_before_its_confirmation(
    url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = opened(url)
    members = [Trees(3).track(ledger) for _ in range(2)]
    members[0].complete(ledger)
    stream = ledger.core.shards[0].outcomes("s")
    entry_id = raw.xadd(stream, {"whole": "no slabs", "part": ""})
    members[1].complete(ledger)
    entries = [Confirmation(0, entry, digest(fields)) for entry, fields in raw.xrange(stream)]
    assert entry_id in [entry.id for entry in entries]
    assert ledger.confirm("s", entries) == 6
    assert raw.xlen(stream) == 0
    assert counter(ledger, raw, "outstanding") == 0
    assert f"shard 0: {entry_id!r} cannot be read" in caplog.text
    assert counter(ledger, raw, "unreadable") == 1


def test_how_many_trees_of_a_slab_are_confirmed_may_be_unreadable(url: str, raw: Any) -> None:
    ledger = opened(url)
    bad, good = Trees(6).track(ledger), Trees(6).track(ledger)
    for part in (slice(0, 1), slice(1, 6)):
        for one in (bad, good):
            ledger.update(one.anchors[part], one.values[part])
        assert confirm_all(ledger) == 2 * len(bad.anchors[part])
        if part.start == 0:
            raw.hset(shard_key(ledger, 0, "confirmed"), slab_of(bad), b"many")
    assert raw.xlen(ledger.core.shards[0].outcomes("s")) == counter(ledger, raw, "outstanding") == 0


@pytest.mark.parametrize("parts", [1, 3])
def test_an_unreadable_finished_slab_goes_with_confirmation(url: str, raw: Any, parts: int) -> None:
    ledger = opened(url)
    bad, good = Trees(6).track(ledger), Trees(6).track(ledger)
    for part in np.array_split(np.arange(6), parts):
        bad.complete(ledger, *part.tolist())
        good.complete(ledger, *part.tolist())
    break_header(ledger, raw, bad, "newer")
    assert confirm_all(ledger) == 12
    assert counter(ledger, raw, "outstanding") == 0
    assert counter(ledger, raw, "unreadable") == 1
    assert raw.hlen(shard_key(ledger, 0, "slabs")) == raw.hlen(shard_key(ledger, 0, "message_ids")) == 0


def test_a_spout_that_starts_anew_is_reported_all_that_can_be_read(url: str, raw: Any) -> None:
    with Topology(url, "t", ackers=1, message_timeout=60) as topology:
        old = topology.spout("s")
        tuples = [old.emit(f"m{n}")[0] for n in range(4)]
        for one in tuples:
            topology.flush()
            topology.bolt("b").ack(one)
            topology.flush()
    ledger = opened(url, "t")
    shard = ledger.core.shards[0]
    entry_id, fields = raw.xrange(shard.outcomes("s"))[0]
    raw.xdel(shard.outcomes("s"), entry_id)
    slab, trees = b"\x00" * 6 + b"\x10\x00", 3
    beyond = slab + struct.pack("<IH3H", 5, trees, 0, 1, 4095)
    raw.xadd(shard.outcomes("s"), {**fields, b"whole": b"", b"part": beyond})
    raw.xadd(shard.outcomes("s"), {**fields, b"whole": b"\xff"})
    with Topology(url, "t", ackers=1, message_timeout=60) as topology:
        spout = topology.spout("s")
        message_ids: set[bytes] = set()
        while len(message_ids) < 3:
            for outcome in spout.outcomes(timeout=60):
                message_ids.add(outcome.message_id)
                spout.confirm(outcome)
        topology.flush()
    assert message_ids < {b"m0", b"m1", b"m2", b"m3"}
