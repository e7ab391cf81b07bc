"""Removing a topology: all of it goes, nothing of another, and no trees by mistake."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, islice

import pyarrow as pa
import pytest

from acker.errors import AckerError, SpoutInUse, TopologyInUse, UnknownTopology, ValidationError
from acker.inspect.operate.removal import remove, remove_spout
from acker.inspect.topology import health, history
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.client import open_ledger
from acker.ledger.outcomes.members import Membership, claim, leave
from acker.ledger.settings import topologies
from acker.ledger.settings.config import member_name
from acker.ledger.slabs import registries
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.lines import Gather, Line
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import Operation, command
from acker.streams import StreamWriter
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.filled import filled
from tests.helpers.builders.ledgers import Trees, confirm_all, opened, reported
from tests.helpers.builders.streaming import after_each, run_cut
from tests.helpers.faults.set_backs import lasting, moment, set_back
from tests.helpers.faults.simulator import scripts_of
from tests.helpers.models.leaks import PERMANENT, WHILE_TREES_LIVE, kind_of
from tests.helpers.servers.servers import Raw

pytestmark = pytest.mark.cluster(slow=True)


def test_all_of_it_goes_and_nothing_of_others(url: str) -> None:
    others = ["word", "words.x", "words2"]
    before = {filled(url, name).config.name: lasting(url, name) for name in others}
    filled(url, "words")
    kinds = {kind_of(key) for key in lasting(url, "words")}
    assert kinds == (PERMANENT.keys() | WHILE_TREES_LIVE.keys()) - {
        "acker:topologies",
        "acker:functions",
        "writers_before",
    }
    store = Store(url)
    assert store.run(remove("words", force=True)) > 600
    assert not lasting(url, "words")
    assert store.run(topologies.names()) == others
    assert {name: lasting(url, name) for name in others} == before
    for _ in range(2):
        with pytest.raises(UnknownTopology, match="'words'"):
            store.run(remove("words", force=True))


def test_what_was_written_without_a_topology_stays_where_it_is_stored_again(url: str) -> None:
    ledger = filled(url, "words")
    store = Store(url)
    store.send([command("UNLINK", keys.config("words"))])  # its server has lost it
    looked = [keys.steps("words"), keys.step_numbers("words"), keys.streams("words"), keys.lines("words")]
    store.send([command("UNLINK", key) for key in looked])
    ledger.run(step_registry.register(ledger.core, Step("split", "bolt", "app")))
    ledger.run(step_totals.mark(ledger.core, "split"))
    Line(ledger, "line", [Gather("gathers")])
    assert all(left > 0 for left in store.send([command("TTL", key) for key in looked]))
    ledger.run(ledger.core.restore())
    assert store.send([command("TTL", key) for key in looked]) == [-1] * 4


def test_a_topology_of_its_name_begins_anew(url: str) -> None:
    ledger = filled(url, "words")
    ledger.run(remove(ledger.config.name, force=True))
    ledger = open_ledger(Store(url), "words", ackers=1, create=True)
    assert not any(ledger.counters().values())
    trees = Trees(3).track(ledger)
    trees.complete(ledger)
    assert confirm_all(ledger) == 3
    assert ledger.run(remove(ledger.config.name)) == 0
    assert not lasting(url, "words")


def test_trees_are_not_removed_by_mistake(url: str) -> None:
    ledger = opened(url, "words", ackers=2)
    waiting, tracked = Trees(1), Trees(3)
    waiting.complete(ledger)

    def refused(message: str) -> None:
        before = lasting(url, "words")
        with pytest.raises(TopologyInUse, match=message):
            ledger.run(remove(ledger.config.name))
        assert lasting(url, "words") == before
        assert Store(url).run(topologies.names()) == ["words"]

    refused("has 0 trees in flight, 0 with an outcome that is not confirmed, and 1 slabs with messages")
    waiting.track(ledger)
    confirm_all(ledger)
    tracked.track(ledger)
    refused("has 3 trees in flight, 0 with")
    tracked.complete(ledger, 0, 1, 2)
    refused("has 0 trees in flight, 3 with")
    confirm_all(ledger)
    assert ledger.run(remove(ledger.config.name)) == 0
    assert not lasting(url, "words")


def test_a_removal_that_is_cut_anywhere_is_finished_by_another(valkey_url: str, valkey_raw: Raw) -> None:
    store, ledger = Store(valkey_url), filled(valkey_url, "words")
    whole = moment(valkey_raw)
    for after in count():
        set_back(valkey_raw, whole)
        cut = run_cut(ledger, remove("words", force=True), after)
        if store.run(topologies.names()) or lasting(valkey_url, "words").keys() & {keys.config("words")}:
            store.run(remove("words", force=True))
        assert not lasting(valkey_url, "words"), after
        if not cut:
            break
    assert after > 20


def test_late_calls_of_a_client_leave_nothing_until_the_topology_is_made_anew(url: str) -> None:
    ledger, before = opened(url, "words", ackers=2), Trees(3)
    before.track(ledger)
    ledger.run(remove("words", force=True))
    calls: list[Callable[[], object]] = [
        lambda: before.track(ledger),
        lambda: before.complete(ledger),
        lambda: ledger.fail(before.anchors, "bad"),
        lambda: ledger.reset_timeout(before.anchors),
        lambda: ledger.tick(force=True),
    ]
    for call in calls:
        with pytest.raises(UnknownTopology, match="it was removed, so nothing has changed"):
            call()
    ledger.run(topologies.register_spout(ledger.config, "late"))
    assert not lasting(url, "words")
    anew = opened(url, "words", ackers=2)
    for each in (anew, ledger):  # the older process goes on, too
        Trees(3).track(each).complete(each)
    assert anew.counters()["acked"] == 6


def test_a_removal_that_sleeps_takes_nothing_from_the_topology_that_was_made_anew(url: str) -> None:
    ledger, ends = filled(url, "words"), set[str]()
    before = Store(url).run(topologies.names())
    for after in count(1):
        if after > 1:
            ledger = opened(url, "words", ackers=2)
            Trees(5).track(ledger)
        removal = after_each(ledger, remove("words", force=True))
        slept = len(list(islice(removal, after))) == after
        with suppress(UnknownTopology):
            Store(url).run(remove("words", force=True))
        anew = opened(url, "words", ackers=2)
        trees = Trees(3).track(anew)
        try:
            list(removal)
            ends.add("over")
        except TopologyInUse as error:
            ends.add("made anew" if "was opened again" in str(error) else str(error))
        trees.complete(anew)
        confirm_all(anew)
        assert anew.counters()["acked"] == 3, after
        if not slept:
            break
    assert ends == {"over", "made anew"}
    assert before == ["words"]


def test_a_creation_that_stops_anywhere_is_finished_by_the_next_opener(
    valkey_url: str, valkey_raw: Raw
) -> None:
    ledger = filled(valkey_url, "words")
    ledger.run(remove("words", force=True))
    removed = moment(valkey_raw)
    for after in count(1):
        set_back(valkey_raw, removed)
        creation = after_each(ledger, topologies.register("words", {"ackers": 2}))
        stopped = len(list(islice(creation, after))) == after
        other = opened(valkey_url, "words", ackers=2)
        trees = Trees(3).track(other)
        list(creation)  # its process wakes up
        trees.complete(other)
        assert other.counters()["acked"] == 3, after
        assert ledger.run(topologies.names()) == ["words"]
        if not stopped:
            break
    assert after > 3


def test_a_topology_that_is_made_anew_while_its_removal_ends_stays(url: str) -> None:
    ledger, trees, anew = filled(url, "words"), Trees(3), None
    for _ in after_each(ledger, remove("words", force=True)):
        if anew is None and ledger.run(topologies.spouts("words")) is None:
            anew = opened(url, "words", ackers=2)
            trees.track(anew)
    assert anew is not None
    trees.complete(anew)
    assert len(reported(anew, trees)) == 3
    assert ledger.run(topologies.spouts("words"))


def test_a_topology_without_tracking_can_be_removed(url: str) -> None:
    ledger = opened(url, "words", ackers=0)
    StreamWriter(ledger, "lines").write(pa.table({"id": range(3)}))
    assert ledger.run(remove(ledger.config.name)) == 0
    assert not lasting(url, "words")


def test_many_slabs_go_in_steps(valkey_url: str) -> None:
    ledger = opened(valkey_url, "words", ackers=1)
    slabs = [Trees(2) for _ in range(1100)]
    ledger.track_slabs([NewSlab(one.anchors, one.values, one.message_ids) for one in slabs], spout="s")
    assert len(lasting(valkey_url, "words")) > 1100
    ledger.run(bounded(remove("words", force=True)))
    assert not lasting(valkey_url, "words")


def bounded(operation: Operation[object]) -> Operation[None]:
    """The same operation; fails where a step of it is large."""
    replies = None
    try:
        while True:
            requests = operation.send(replies)  # type: ignore[arg-type]
            assert len(requests) <= 500
            assert max((len(request.command()) for request in requests), default=0) < 510
            replies = yield requests
    except StopIteration:
        return


def test_a_tick_under_way_writes_nothing(url: str) -> None:
    ledger, late = filled(url, "t"), False

    def with_a_tick() -> Operation[None]:
        nonlocal late
        removing = remove("t", force=True)
        requests = next(removing)
        while True:  # a step may have no requests, as where a shard has slabs of one only
            replies = yield requests
            if not late and scripts_of(requests) == ["forget_topology"]:
                late = True
                with pytest.raises(UnknownTopology, match="'t': it was removed, so nothing has changed"):
                    ledger.tick(force=True)
            try:
                requests = removing.send(replies)
            except StopIteration:
                return

    ledger.run(with_a_tick())
    assert late
    assert not lasting(url, "t")


@pytest.mark.parametrize("write", [history.record, partial(health.health, note=True)])
def test_writes_of_a_service_under_way_go_too(url: str, write: Callable[[Core], Operation[object]]) -> None:
    """A service that was stopped before each of its requests in turn, for as long as the removal took."""
    for stop in range(1, 100):
        ledger, asked = opened(url, "t", ackers=2), 0
        ledger.fail(Trees(3).track(ledger).anchors, "bad")
        ledger.store.send([command("UNLINK", keys.turn("t"))])
        writing = write(ledger.core)
        requests = next(writing)
        try:
            while True:
                asked += 1
                if asked == stop:
                    ledger.run(remove(ledger.config.name, force=True))
                requests = writing.send(ledger.store.send(requests))
        except (StopIteration, AckerError):
            pass
        if asked < stop:
            break
        assert not lasting(url, "t"), requests
    assert stop > 3


def test_a_topology_that_is_removed_takes_no_thresholds(url: str) -> None:
    removed = opened(url, "t")
    removed.run(remove(removed.config.name, force=True))
    with pytest.raises(UnknownTopology):
        removed.run(health.set_thresholds(removed.core, {"expired": 1}))
    assert not lasting(url, "t")


def test_a_spout_that_owes_nothing_is_removed_and_makes_room(url: str) -> None:
    ledger, other = opened(url, ackers=2), opened(url, ackers=2)
    trees = Trees(5).track(ledger, "s-0")
    for number in range(1, 64):
        ledger.register_spout(f"s-{number}")
    with pytest.raises(AckerError, match=r"64 spouts already.*acker remove tested --spout"):
        ledger.register_spout("one-more")
    with pytest.raises(SpoutInUse, match="5 trees"):
        ledger.run(remove_spout(ledger.core, "s-0"))
    trees.complete(ledger)
    with pytest.raises(SpoutInUse, match="5 trees"):
        other.run(remove_spout(other.core, "s-0"))
    assert len(reported(ledger, trees, spout="s-0")) == 5
    confirm_all(ledger, "s-0")
    other.run(remove_spout(other.core, "s-0"))
    assert "s-0" not in other.core.spouts
    with pytest.raises(ValidationError, match="no spout 's-0'"):
        ledger.run(remove_spout(ledger.core, "s-0"))
    ledger.register_spout("one-more")
    # What was its is nobody's, and a spout that comes later, of that name too, has its own.
    ledger.run(remove_spout(ledger.core, "s-1"))
    own, theirs = Trees(2).track(ledger, "s-0"), Trees(3).track(other, "one-more")
    own.complete(other)
    theirs.complete(ledger)
    assert len(reported(ledger, own, spout="s-0")) == 2
    assert len(reported(ledger, theirs, spout="one-more")) == 3


def test_a_spout_is_removed_with_all_its_members(url: str) -> None:
    ledger = opened(url, ackers=1)
    ledger.register_spout("k")
    for place in (1, 2, 7):  # the places of members are forgotten after a month without any
        name = member_name("k", place)
        trees = Trees(2)
        slab = NewSlab(trees.anchors, trees.values, trees.message_ids)
        ledger.run(idempotence.send(ledger.core, ledger.core.track([slab], name)))
        with pytest.raises(SpoutInUse, match="2 trees"):
            ledger.run(remove_spout(ledger.core, "k"))
        trees.complete(ledger)
        confirm_all(ledger, name)
    Trees(1).track(ledger, "k2")
    ledger.run(remove_spout(ledger.core, "k"))
    [registry] = ledger.store.send([command("HGET", ledger.core.shards[0].clock, "spouts")])
    assert list(registries.names(registry).values()) == ["k2"]


def test_outcomes_of_members_that_are_gone_keep_no_spout_from_its_removal(url: str) -> None:
    ledger = opened(url, ackers=1)
    ledger.register_spout("k")
    gone, there = Membership.of("k", 60.0), Membership.of("k", 60.0)
    for member in (gone, there):
        ledger.run(claim(ledger.core, member))
    assert {gone.name, there.name} == {"k", member_name("k", 2)}
    trees = [Trees(2), Trees(3)]
    for one, member in zip(trees, (gone, there), strict=True):
        slab = NewSlab(one.anchors, one.values, one.message_ids)
        ledger.run(idempotence.send(ledger.core, ledger.core.track([slab], member.name)))
    ledger.run(leave(ledger.core, gone))
    with pytest.raises(SpoutInUse, match="5 trees"):
        ledger.run(remove_spout(ledger.core, "k"))
    for one in trees:
        one.complete(ledger)
    with pytest.raises(SpoutInUse, match="3 trees"):  # a living member will confirm them
        ledger.run(remove_spout(ledger.core, "k"))
    ledger.run(leave(ledger.core, there))
    ledger.run(remove_spout(ledger.core, "k"))
    assert "k" not in ledger.core.spouts


def test_a_spout_that_keeps_rows_or_dead_letters_is_not_removed(url: str) -> None:
    ledger = opened(url, ackers=2)
    [roots] = StreamSpout(ledger, SpoutOptions("kept", "lines", "id", attempts=1)).write(
        pa.table({"id": [1]})
    )
    with pytest.raises(SpoutInUse, match="rows"):
        ledger.run(remove_spout(ledger.core, "kept"))
    ledger.fail(roots.anchors(), "bad")
    settler.settle(ledger)
    with pytest.raises(SpoutInUse, match="1 dead letters"):
        ledger.run(remove_spout(ledger.core, "kept"))
