"""Keys of stamps: a rotation keeps the rows under way, and is refused where it would not."""

import pytest
import redis

from acker import StoreUnavailable, Topology
from acker.cli.app import run
from acker.cli.shared.statuses import Status
from acker.collectors.external import receiving
from acker.embedded import EmbeddedServer
from acker.errors import StreamLost, TopologyInUse
from acker.inspect.operate import ticker_hooks
from acker.streams.staging.external.rotating import rotate
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source


def rotated(topology: Topology, force: bool = False) -> dict[str, int]:
    """The streams with a new key, and their open segments of a key that is gone."""
    return topology.ledger.run(rotate(topology.ledger.core, force=force))


def test_rows_of_both_keys_are_received_by_a_step_that_knew_one(make: Make) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    old = source(sender, 2)
    sender.flush()
    assert rotated(sender) == {"items": 0}
    late = source(sender, 1)  # by a sender that knows the key before
    again = make()
    new = source(again, 2)
    for topology in (sender, again):
        topology.flush()
    rows = [items.extract(headers) for headers in [*new, *old, *late]]
    assert all(row.tracked for row in rows)
    items.ack(rows)
    step.flush()
    assert step.counters()["acked"] == 5
    assert "foreign" not in items.counted


def test_a_rotation_is_refused_while_segments_of_the_key_before_are_open(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    old = source(sender, 3)
    sender.flush()
    rotated(sender)
    with pytest.raises(TopologyInUse, match="items 3"):
        rotated(sender)
    name, url = sender.name, sender.ledger.store.url
    assert run(["configure", name, "--rotate-key", "--url", url]) == Status.TROUBLE
    assert "--force" in capsys.readouterr().err
    items.ack(items.extract_many(old))
    step.flush()
    step.ledger.run(ticker_hooks.keep(step.ledger.core))
    assert run(["configure", name, "--rotate-key", "--url", url]) == Status.DONE
    assert "stream items has a new key" in capsys.readouterr().out
    assert not make().incoming("items", subscription="count").extract_many(old)[0].tracked
    with pytest.raises(StreamLost):
        source(sender, 1)


def test_a_forced_rotation_says_how_many_segments_it_leaves(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = make()
    sender.incoming("items", subscription="count")
    old = source(sender, 3)
    sender.flush()
    name, url = sender.name, sender.ledger.store.url
    for words in ("stream items has a new key\n", "rows of 3 open segments are foreign now"):
        assert run(["configure", name, "--rotate-key", "--force", "--url", url]) == Status.DONE
        assert words in capsys.readouterr().out
    items = make().incoming("items", subscription="count")
    assert not any(row.tracked for row in items.extract_many(old))
    assert items.counted == {"rows": 3, "foreign": 3}


@pytest.mark.parametrize("rows", [1, 0])
def test_a_step_that_only_receives_goes_on_through_any_number_of_rotations(make: Make, rows: int) -> None:
    step = make()
    items = step.incoming("items", subscription="count")
    for count in (1, rows, rows, 2):  # with 0 the step sees no row of the keys between
        sender = make()
        headers = source(sender, count)
        sender.flush()
        items.ack([items.extract(one) for one in headers])
        step.flush()
        assert step.counters()["acked"] == step.counters()["tracked"]
        step.ledger.run(ticker_hooks.keep(step.ledger.core))
        assert rotated(step) == {"items": 0}
    assert "foreign" not in items.counted
    assert step.incoming("items", subscription="count").stream == "items"


def test_a_sender_does_not_go_on_with_a_key_that_is_gone(make: Make) -> None:
    sender = make()
    items = sender.incoming("items", subscription="count")
    source(sender, 1)
    for _ in range(2):
        rotated(sender, force=True)
    assert not items.extract_many(source(make(), 1, stream="others"))[0].tracked  # it learns the new keys
    with pytest.raises(StreamLost):
        sender.flush()
    assert sender.counters()["acked"] == 0


def test_a_step_of_a_stream_that_was_made_anew_is_refused(make: Make, raw: redis.Redis) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    headers = source(sender, 2)
    sender.flush()
    rows = items.extract_many(headers)
    raw.delete(*raw.scan_iter("acker:{t/items}:*"))
    make().incoming("items", subscription="count")
    items.ack(rows)
    with pytest.raises(StreamLost):
        step.flush()
    assert step.counters()["acked"] == 0


def test_rows_of_a_new_key_are_tracked_at_once_behind_foreign_rows(make: Make) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    other = sender.outgoing("others").stamp(sender.spout("s").emit("m")[0])
    assert not items.read([other])[0].tracked
    rotated(sender)
    assert all(row.tracked for row in items.extract_many(source(make(), 2)))
    assert items.counted == {"rows": 3, "foreign": 1}


def test_a_look_for_a_key_that_the_store_does_not_answer_is_repeated(
    away: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_KEYS_SECONDS", 3600.0)
    with Topology(away.url, "t", timeout=1.0, linger=None) as step:
        items = step.incoming("items", subscription="count")
        rotated(step)
        with Topology(away.url, "t", linger=None) as sender:
            headers = source(sender, 1)
            sender.flush()
        away.stop()
        with pytest.raises(StoreUnavailable):
            items.extract_many(headers)
        away.start()
        [row] = items.extract_many(headers)
        assert row.tracked
        items.ack(row)


def test_foreign_stamps_have_the_store_asked_once_a_second(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, step = make(), make()
    items = step.incoming("items", subscription="count")
    other = sender.outgoing("others").stamp(sender.spout("s").emit("m")[0])
    asked = list[int]()
    learn = type(items)._learn_keys

    def counted(self: object, numbers: set[int]) -> object:
        asked.append(1)
        return learn(items, numbers)

    monkeypatch.setattr(type(items), "_learn_keys", counted)
    for _ in range(5):
        assert not items.read([other])[0].tracked
    assert len(asked) == 1
