"""`acker complete` is exact: it counts the records of before a time that are open, or says it cannot know."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.errors import ValidationError
from acker.inspect.locate import completion as gates
from acker.inspect.locate.completion import completion
from acker.inspect.operate.removal import remove
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.outcomes import outcomes
from acker.ledger.outcomes.outcomes import OutcomeReader
from acker.ledger.slabs import slabs as headers
from acker.store import keys
from acker.store.client import Store
from acker.store.operation import command
from acker.store.replies import pairs
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.gates import begin, look, mark, now
from tests.helpers.builders.kept_rows import HOW, consume, lines, rows
from tests.helpers.servers.new_server import NewServer

ATTEMPTS = 3


@dataclass
class Row:
    """A record of the model. state: queued, failed, done. group: the first step of those replayed with it."""

    born: int
    state: str = "queued"
    attempt: int = 1
    group: int = 0

    def __post_init__(self) -> None:
        self.group = self.born


@dataclass
class Model:
    """Records of a plain spout `p` and of a spout `s` that keeps rows, and what is done with them."""

    ledger: Ledger
    step: int = 0
    marks: list[tuple[int, float]] = field(default_factory=list)
    plain: dict[int, Row] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    kept: dict[int, Row] = field(default_factory=dict)

    def track(self, number: int) -> None:
        count = number % 5 + 1
        anchors, values = ids.new_anchors(count), ids.new_ids(count)
        self.ledger.track(anchors, values, [b"m"] * count, spout="p")
        self.values |= dict(zip(anchors.tolist(), values.tolist(), strict=True))
        self.plain |= {anchor: Row(self.step) for anchor in anchors.tolist()}

    def end(self, number: int) -> None:
        queued = [anchor for anchor, row in self.plain.items() if row.state == "queued"]
        for place, anchor in enumerate(queued):
            if number >> (place % 8) & 1:
                self.ledger.update([anchor], [self.values[anchor]])
                self.plain[anchor].state = "done"
            elif number >> (place % 8) & 2:
                self.ledger.fail([anchor], "bad")
                self.plain[anchor].state = "failed"

    def confirm(self, _: int) -> None:
        reader = OutcomeReader(self.ledger.core, "p")
        entries = self.ledger.run(reader.read())
        self.ledger.run(outcomes.confirm(self.ledger.core, "p", [one.confirmation for one in entries]))
        for row in self.plain.values():
            row.state = "done" if row.state == "failed" else row.state

    def write(self, number: int) -> None:
        first, count = len(self.kept), number % 4 + 1
        StreamSpout(self.ledger, HOW).write(lines(count, first=first))
        self.kept |= {first + place: Row(self.step) for place in range(count)}

    def work(self, number: int) -> None:
        there = rows(self.ledger)
        bad = [row for row in there if number >> row["id"] % 8 & 1]
        if bad:
            self.ledger.fail([row["_acker"] for row in bad], "bad")
        consume(self.ledger)
        for row in there:
            self.kept[row["id"]].state = "failed" if row in bad else "done"

    def settle(self, _: int) -> None:
        settler.settle(self.ledger)
        failed = [row for row in self.kept.values() if row.state == "failed"]
        first = {row.attempt: 1 << 30 for row in failed}
        for row in failed:
            first[row.attempt] = min(first[row.attempt], row.group)
        for row in self.kept.values():
            if row.state == "failed":
                row.group = first[row.attempt]
                row.state = "queued" if row.attempt < ATTEMPTS else "done"
                row.attempt += 1

    def mark(self, _: int) -> None:
        self.marks.append((self.step, mark(self.ledger)))

    def check(self) -> None:
        for step, at in self.marks:
            every = [*self.plain.values(), *self.kept.values()]
            least = sum(row.born < step and row.state != "done" for row in every)
            # Rows that are replayed together may count as tracked with the first of them.
            most = sum(row.group < step and row.state != "done" for row in every)
            answer = look(self.ledger, at)
            assert least <= answer.records <= most
            assert (answer.state, answer.reasons) == ("open" if answer.records else "complete", ())


MOVES = ("track", "end", "confirm", "write", "work", "settle", "mark")


@settings(max_examples=15)
@given(moves=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 255)), max_size=16))
def test_it_counts_what_was_first_tracked_before_a_time_and_is_not_done(
    valkey_url: str, moves: list[tuple[str, int]]
) -> None:
    redis.Redis.from_url(valkey_url).flushall()
    model = Model(open_ledger(Store(valkey_url), "t", ackers=2))
    begin(model.ledger)
    begun: list[tuple[str, int]] = [("mark", 0), ("write", 2), ("track", 2), ("mark", 0)]
    for name, number in [*begun, *moves]:
        model.step += 1
        move: Callable[[int], None] = getattr(model, name)
        move(number)
    model.check()


@pytest.mark.cluster
def test_spouts_whose_rows_nobody_keeps_pass_on_each_kind_of_server(ledger: Ledger) -> None:
    for name in "abc":
        ledger.register_spout(name)
    begin(ledger)
    assert look(ledger, mark(ledger)).state == "complete"


@pytest.mark.cluster
def test_a_replay_counts_as_its_record_also_while_it_waits_for_its_time(ledger: Ledger) -> None:
    spout = StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=2, backoff=0.001))
    ledger.register_spout("s")
    begin(ledger)
    spout.write(lines(3))
    before = mark(ledger)
    spout.write(lines(2, first=3))
    ledger.fail([row["_acker"] for row in rows(ledger)], "bad")
    consume(ledger)
    assert look(ledger, before).places[0] == gates.OpenPlace("spout s", 3)
    deadline = time.monotonic() + 10
    while settler.settle(ledger).replayed == 0:
        assert time.monotonic() < deadline
    answer = look(ledger, before)
    # Rows that were tracked first within one second are replayed together.
    assert answer.state == "open"
    assert answer.records >= 3
    assert answer.places[0].step == "default (stream lines)"
    assert look(ledger, before - 60).state == "unknown"  # the server is known for less than that
    consume(ledger)
    assert (look(ledger, before).state, look(ledger, mark(ledger)).state) == ("complete", "complete")


def test_trees_that_lie_in_no_stream_and_many_small_slabs_are_counted(ledger: Ledger) -> None:
    begin(ledger)
    anchors = [ids.new_anchors(1) for _ in range(300)]
    for one in anchors:
        ledger.track(one, [5], [b"m"], spout="p")
    answer = look(ledger, mark(ledger))
    assert (answer.state, answer.records) == ("open", 300)
    assert answer.places == (gates.OpenPlace(gates.IN_NO_STREAM, 300),)
    assert answer.text == "open: 300 records not done"


def test_outcomes_count_of_a_spout_that_only_the_shards_list(ledger: Ledger) -> None:
    ledger.register_spout("p")
    ledger.run(remove("t"))
    anew = open_ledger(ledger.store, "t", ackers=ledger.config.ackers)
    begin(anew)
    # Another process still has the topology of before, and takes its spout for registered.
    anchors = ids.new_anchors(2)
    ledger.track(anchors, ids.new_ids(2), [b"m"] * 2, spout="p")
    ledger.fail(anchors, "bad")
    answer = look(anew, mark(anew))
    assert (answer.state, answer.places) == ("open", (gates.OpenPlace("spout p", 2),))
    with pytest.raises(ValidationError, match="which only members of a group have"):
        ledger.track(ids.new_anchors(1), ids.new_ids(1), [b"m"], spout="p.member-2")


def test_a_clock_that_was_ahead_hides_no_tree(ledger: Ledger) -> None:
    """The clock is not set back here: what it would have written is."""
    begin(ledger)
    ledger.track(ids.new_anchors(1), ids.new_ids(1), [b"m"], spout="p")
    for shard in ledger.core.shards:
        [fields] = ledger.store.send([command("HGETALL", shard.slabs)])
        for slab, stored in pairs(fields).items():
            kind, count, number, stamp, at = headers.FIXED.unpack_from(stored)
            ahead = headers.FIXED.pack(kind, count, number, stamp, at + 60_000) + stored[headers.FIXED.size :]
            ledger.store.send([command("HSET", shard.slabs, slab, ahead)])
    early = mark(ledger)
    assert (look(ledger, early).state, look(ledger, early).records) == ("open", 1)
    [noted] = ledger.store.send([command("HGET", keys.reached("t"), "server")])
    server, since, latest = noted.decode().split()
    later = f"{server} {since} {int(latest) + 60_000}"
    ledger.store.send([command("HSET", keys.reached("t"), "server", later)])
    answer = look(ledger, early)
    assert answer.state == "unknown"
    assert "whole since" in answer.reasons[0]


def test_an_emptied_or_restarted_store_is_never_complete_for_a_time_before(new_server: NewServer) -> None:
    server = new_server("valkey")
    ledger = open_ledger(Store(server.url), "t", ackers=2)
    begin(ledger)
    early = mark(ledger)
    assert look(ledger, early).state == "complete"
    redis.Redis.from_url(server.url).flushall()
    ledger = open_ledger(Store(server.url), "t", ackers=2)
    answer = look(ledger, early)
    assert answer.state == "unknown"
    assert "whole since" in answer.reasons[0]
    late = mark(ledger)
    assert look(ledger, late).state == "complete"
    server.kill()
    server.start()
    assert look(ledger, late).state == "unknown"
    assert look(ledger, mark(ledger)).state == "complete"


def test_a_time_needs_a_zone_and_an_age_goes_by_the_clock_of_the_store(ledger: Ledger) -> None:
    for wrong in ("2026-11-26T00:00:00", "yesterday", "-5m", "5", "1w", ""):
        with pytest.raises(ValidationError, match="expected a time with its zone"):
            ledger.run(completion(ledger.core, wrong))
    with pytest.raises(ValidationError, match="with a zone"):
        ledger.run(completion(ledger.core, datetime(2026, 11, 26)))
    with pytest.raises(ValidationError, match="ten years from now"):
        look(ledger, 1e300)
    assert gates.before_of("90s", 100.0) == 10.0
    assert gates.before_of("1.5h", 7200.0) == 1800.0
    at = datetime(2026, 11, 26, tzinfo=UTC)
    assert gates.before_of("2026-11-26T01:00:00+01:00", 0.0) == at.timestamp()
    assert ledger.run(completion(ledger.core, at)).before == at.timestamp()
    future = look(ledger, now(ledger) / 1000 + 60)
    assert (future.state, future.reasons) == (
        "open",
        ("the time has not come yet, by the clock of the store",),
    )


def test_without_tracking_nothing_is_known(url: str) -> None:
    ledger = open_ledger(Store(url), "off", ackers=0)
    answer = look(ledger, time.time())
    assert (answer.state, answer.records) == ("unknown", 0)
    ledger.run(remove("off"))
