"""`acker replay` and `discard` of all: with what waits for room, its total, and where it ends."""

import json
import re
import signal
import threading
from typing import Any

import pytest

from acker.errors import DeadLettersFull
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings import config
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.kept_rows import fail, lines, rows
from tests.helpers.faces.cli import Acker, good

MOST = 20


@pytest.fixture
def full(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A spout with 20 dead letters, its most, and 45 rows more that failed and wait for room."""
    monkeypatch.setattr(config, "DEAD_LETTERS", MOST)
    return failing(ledger, 65)


def failing(ledger: Ledger, count: int, **how: Any) -> Ledger:
    for first in range(0, count, 5):
        StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1, **how)).write(lines(5, first))
        fail(ledger, lambda _: True, "no such shop")
        if first < MOST:
            settler.settle(ledger)
    with pytest.raises(DeadLettersFull):
        settler.settle(ledger)
    return ledger


def test_one_replay_takes_also_the_rows_that_waited_for_room(acker: Acker, full: Ledger) -> None:
    run = acker("replay", "words", "--all")
    assert (run.status, run.out, run.error) == (0, "65 replayed\n", "")
    assert sorted(int(str(row["id"])) for row in rows(full)) == [*range(65)]


def test_rows_that_fail_again_are_left(acker: Acker, full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(ledger: Ledger, *how: object, **more: object) -> Any:
        fail(ledger, lambda _: True, "no such shop")  # a job that is quick
        return original(ledger)

    original = settler.settle
    monkeypatch.setattr(settler, "settle", settle)
    run = acker("replay", "words", "--all")
    assert (run.status, run.out) == (0, "65 replayed\n")


def test_one_discard_asks_with_all_of_them_and_drops_them(acker: Acker, full: Ledger) -> None:
    assert "65 dead letters would be gone for good" in acker("discard", "words", "--all").error
    assert good(acker("discard", "words", "--all", "--yes", "--json")) == {
        "discarded": 65, "unknown": [], "remaining": 0, "why": "",
    }  # fmt: skip
    assert acker("dead-letters", "words").out == "no dead letters\n"


def test_rows_that_are_held_are_counted_with_the_reason_and_waited_for_if_asked(
    acker: Acker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "DEAD_LETTERS", MOST)
    failing(ledger, 30, max_spout_pending=10)
    run = acker("replay", "words", "--all")
    assert run.status == 5
    said = re.fullmatch(
        r"(\d+) replayed; (\d+) remain: spout 's' has \d+ rows .*max_spout_pending is 10\n", run.out
    )
    assert said is not None
    done, held = map(int, said.groups())
    assert done + held == 30
    run = acker("replay", "words", "--all", "--json")
    found = json.loads(run.out)
    assert (run.status, len(found["replayed"]), found["remaining"]) == (1, 0, held)
    assert "max_spout_pending is 10" in found["why"]
    stop = threading.Event()

    def job() -> None:
        own = open_ledger(Store(ledger.store.url), "words")
        while not stop.wait(0.05):
            fail(own, lambda _: False)

    working = threading.Thread(target=job)
    working.start()
    try:
        run = acker("replay", "words", "--all", "--wait", "30")
    finally:
        stop.set()
        working.join()
    assert (run.status, run.out) == (0, f"{held} replayed\n")


def test_letters_of_another_filter_hold_up_what_waits(acker: Acker, full: Ledger) -> None:
    run = acker("replay", "words", "--reason", "nothing of that kind")
    assert run.status == 1
    assert re.search(r"^0 replayed; 45 remain: spout 's' has 20 dead letters, its most", run.out)


def test_ctrl_c_ends_it_between_pages(acker: Acker, full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(*given: Any, **how: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return (yield from original(*given, **how, limit=7))

    original = dead_letters.replay_some
    monkeypatch.setattr(dead_letters, "replay_some", some)
    run = acker("replay", "words", "--all", "--json")
    found = json.loads(run.out)
    assert (run.status, len(found["replayed"]), found["remaining"]) == (130, 7, 58)
    monkeypatch.setattr(dead_letters, "replay_some", original)
    assert acker("replay", "words", "--all").out == "58 replayed\n"
