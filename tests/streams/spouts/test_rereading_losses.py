"""Rereading where the topology, its spout, a function, or what the store has of them goes."""

import secrets
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import redis

from acker.inspect.operate.removal import remove, remove_spout
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings.topologies import REMEMBERED, read_marks
from acker.lines.scripts import forget_names
from acker.store.client import Store
from acker.store.function_keys import named
from acker.store.operation import Operation
from acker.streams.sources import roots
from acker.streams.sources.roots import Roots
from acker.streams.spouts import rereading, settler
from acker.streams.spouts.replays import Stepped
from acker.streams.spouts.rereading import Rereader
from tests.helpers.builders.kept_rows import consume, fail, lines
from tests.helpers.builders.rereading import Source, unread, write
from tests.helpers.faults.set_backs import moment, set_back
from tests.helpers.servers.new_server import NewServer


def retire_function(ledger: Ledger) -> None:
    """Takes the line of a function off the list, as its removal does."""
    [seen] = ledger.run(read_marks([named("t")]))
    assert ledger.store.send([forget_names("t", "f", [], seen, REMEMBERED)]) == [1]


def test_a_spout_that_is_removed_takes_the_note_of_its_source_with_it(
    ledger: Ledger, source: Source, reader: Rereader
) -> None:
    write(ledger)
    fail(ledger, lambda row: row["id"] == 3)
    source.bad = {3}
    assert reader.step() == 0
    assert len(unread(ledger)) == 1
    assert Rereader(ledger, "s", Source(lines(10))).step() == 1
    settler.settle(ledger)
    consume(ledger)
    settler.settle(ledger)
    ledger.run(remove_spout(ledger.core, "s"))
    assert unread(ledger) == []
    reader._note.write(ledger, "late")  # of a step that was under way
    assert unread(ledger) == []


@pytest.mark.parametrize("removed", [True, False])
def test_who_has_asked_for_rows_of_a_removed_topology_asks_for_none_of_the_one_that_was_made_anew(
    ledger: Ledger, source: Source, reader: Rereader, raw: "redis.Redis", removed: bool
) -> None:
    """Its rows may be of another source. Where the store has lost the topology, they are of the same."""
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    assert reader.step() == 1
    if removed:
        ledger.run(remove("t", force=True))
    else:
        raw.flushall()
    anew = open_ledger(ledger.store, "t", ackers=3, slab_limit=100)
    write(anew, first=100)
    fail(anew, lambda row: row["id"] == 101)
    source.there = lines(0) if removed else lines(110)
    assert reader.step() == (0 if removed else 1)
    assert reader.removed is removed
    assert settler.settle(anew) == Stepped(acked=9, replayed=0 if removed else 1)
    assert Rereader(anew, "s", Source(lines(110))).step() == (1 if removed else 0)


def test_rows_that_the_store_does_not_take_keep_no_others(new_server: NewServer) -> None:
    server = new_server(options={"proto-max-bulk-len": "1mb"})
    ledger = open_ledger(Store(server.url), "t", ackers=1)
    for first in (0, 2):
        write(ledger, 2, first)
        fail(ledger, lambda row: True)
    there = lines(4).set_column(1, "line", pa.array([secrets.token_hex(900_000)] * 2 + ["small"] * 2))
    reader = Rereader(ledger, "s", Source(there))
    assert reader.step() == 2
    assert settler.settle(ledger) == Stepped(replayed=2)
    assert "a value has " in unread(ledger)[0]


def test_a_function_that_is_retired_is_no_removal_of_the_topology(
    ledger: Ledger, source: Source, reader: Rereader, raw: "redis.Redis"
) -> None:
    """The store has lost the topology, and a function was retired since."""
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    assert reader.step() == 1
    raw.flushall()
    anew = open_ledger(ledger.store, "t", ackers=3, slab_limit=100)
    write(anew)
    fail(anew, lambda row: row["id"] == 2)
    retire_function(ledger)
    assert reader.step() == 1
    assert not reader.removed


def test_a_removal_is_seen_though_others_came_since(ledger: Ledger, source: Source, reader: Rereader) -> None:
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    assert reader.step() == 1
    ledger.run(remove("t", force=True))
    open_ledger(ledger.store, "t", ackers=3, slab_limit=100)
    ledger.run(remove("t", force=True))
    anew = open_ledger(ledger.store, "t", ackers=3, slab_limit=100)
    write(anew)
    fail(anew, lambda row: row["id"] == 2)
    retire_function(ledger)
    assert reader.step() == 0
    assert reader.removed


def test_states_are_of_the_ids_that_were_read_though_the_store_is_set_back_to_earlier_ones(
    ledger: Ledger, source: Source, reader: Rereader, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process stores an answer between the two reads of a step; the store loses it."""
    write(ledger)
    fail(ledger, lambda row: row["id"] == 1)
    other, before, read, clock = Rereader(ledger, "s", source), moment(raw), roots.kept_rows, [1e3]

    def later(core: Core, of: Roots, *rest: Any) -> Operation[pa.Table | None]:
        patched.setattr(roots, "kept_rows", read)
        assert other.step() == 1
        return read(core, of, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(rereading, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        patched.setattr(roots, "kept_rows", later)
        assert reader.step() == 0
        set_back(raw, before)
        clock[0] += 100.0
        assert reader.step() == 1
