"""Dead letters go to a place of the user's as well: each at least once, whatever the place does."""

import re
from collections.abc import Sequence

import pytest
import redis

from acker.inspect.operate.removal import remove, remove_spout
from acker.inspect.topology import health
from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store
from acker.streams.dead_letters import dead_letters, sending
from acker.streams.dead_letters.sending import LetterSender, SentLetter
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler, wait_notes
from tests.helpers.builders.kept_rows import fail, letters, lines
from tests.helpers.servers.servers import wait_until


class Place:
    """A place that letters are written to, and the calls that it got."""

    def __init__(self) -> None:
        self.got: list[SentLetter] = []
        self.calls: list[int] = []
        self.away = False
        self.too_large = set[bytes]()
        """Names of rows that it does not take."""

    def __call__(self, sent: Sequence[SentLetter]) -> None:
        """Takes letters, all or none."""
        self.calls.append(len(sent))
        if self.away or any(one.row is not None and one.message_id in self.too_large for one in sent):
            raise OSError("the place is away" if self.away else "too large")
        self.got += sent

    @property
    def names(self) -> list[int]:
        """The names of the letters that it got."""
        return [int(letter.message_id) for letter in self.got]


@pytest.fixture
def ledger(url: str) -> Ledger:
    return open_ledger(Store(url), "t", ackers=3, slab_limit=100)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def sender(ledger: Ledger, place: Place) -> LetterSender:
    return LetterSender(ledger, "s", place)


def bury(ledger: Ledger, count: int, first: int = 0) -> None:
    StreamSpout(ledger, SpoutOptions("s", "lines", "id", attempts=1)).write(lines(count, first=first))
    fail(ledger, lambda row: True, "bad", by="parse", batch=7)
    settler.settle(ledger)


def unsent(ledger: Ledger) -> list[str]:
    troubles = ledger.run(health.health(ledger.core)).troubles
    return [trouble.text for trouble in troubles if trouble.code == "unsent"]


def test_each_letter_is_sent_once_with_its_row_and_stays(
    ledger: Ledger, place: Place, sender: LetterSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MOST", 4)
    bury(ledger, 10)
    sender = LetterSender(ledger, "s", place)
    assert [sender.step() for _ in range(4)] == [4, 4, 2, 0]
    assert place.got == [SentLetter.of(letter) for letter in letters(ledger)]
    assert (place.got[3].row or {})["line"] == "line 3"
    assert (place.got[3].reason, place.got[3].step, place.got[3].batch) == ("bad", "parse", 7)
    bury(ledger, 2, first=10)
    another = LetterSender(ledger, "s", place)  # as after a restart
    assert (another.step(), another.step()) == (2, 0)
    assert place.names == list(range(12))


def test_letters_wait_for_a_place_that_is_away_and_the_reason_is_shown(
    ledger: Ledger, place: Place, sender: LetterSender, caplog: pytest.LogCaptureFixture
) -> None:
    bury(ledger, 40)
    place.away = True
    assert [sender.step() for _ in range(3)] == [0, 0, 0]
    assert place.calls == [40, 2, 1, 1]
    assert caplog.text.count("dead letters of spout 's' wait, and are sent again: the place is away") == 1
    assert unsent(ledger) == ["dead letters of spout s wait for their sink: OSError: the place is away"]
    assert len(letters(ledger)) == 40
    place.away = False
    assert [sender.step() for _ in range(7)] == [1, 2, 4, 8, 16, 9, 0]
    assert unsent(ledger) == []
    assert place.names == list(range(40))


def test_a_place_that_hangs_is_shown_until_it_goes_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wait_notes, "SLOW", 0.1)
    bury(ledger, 3)

    def hang(sent: Sequence[SentLetter]) -> None:
        wait_until(lambda: unsent(ledger) != [])
        shown.extend(unsent(ledger))

    shown = list[str]()
    assert LetterSender(ledger, "s", hang).step() == 3
    assert re.fullmatch(
        "dead letters of spout s wait for their sink: `dead_letters_to` has not returned for [0-9]+ s",
        shown[0],
    )
    assert "dead letters of spout 's' wait: `dead_letters_to` has not returned for" in caplog.text
    assert unsent(ledger) == []


def test_a_letter_whose_row_the_place_does_not_take_is_sent_without_it_and_keeps_no_other(
    ledger: Ledger, place: Place, sender: LetterSender, caplog: pytest.LogCaptureFixture
) -> None:
    bury(ledger, 6)
    place.too_large = {b"0", b"4"}
    for _ in range(12):
        sender.step()
    assert place.names == list(range(6))
    assert [int(one.message_id) for one in place.got if one.row is None] == [0, 4]
    assert "was written without its row, which stays in the store: too large" in caplog.text
    assert sender.trouble == ""
    assert letters(ledger)[4].row["line"] == "line 4"


@pytest.mark.damage
def test_a_letter_whose_row_cannot_be_read_is_sent_without_it(
    ledger: Ledger, place: Place, sender: LetterSender, raw: "redis.Redis"
) -> None:
    bury(ledger, 4)
    dead = letters(ledger)
    ledger.run(dead_letters.discard(ledger.core, [dead[1].id]))  # before it was sent: it is left out
    raw.hset(keys.Spout("t", "s").letters, dead[2].number, b"damaged")
    sender.step()
    assert [(int(one.message_id), one.row is None) for one in place.got] == [
        (0, False),
        (2, True),
        (3, False),
    ]


def test_a_process_sends_no_letters_of_a_topology_that_was_made_anew(
    ledger: Ledger, place: Place, sender: LetterSender
) -> None:
    bury(ledger, 1)
    assert sender.step() == 1
    ledger.run(remove("t", force=True))
    anew = open_ledger(ledger.store, "t", ackers=3, slab_limit=100)
    bury(anew, 2)
    assert (sender.step(), sender.removed, place.names) == (0, True, [0])
    other = Place()
    assert LetterSender(anew, "s", other).step() == 2


def test_a_spout_that_is_removed_takes_the_notes_of_its_letters_with_it(
    ledger: Ledger, place: Place, sender: LetterSender, raw: "redis.Redis"
) -> None:
    bury(ledger, 2)
    sender.step()
    place.away = True
    bury(ledger, 1, first=2)
    sender.step()
    health_of = keys.health("t")
    assert {b"sent:s", b"unsent:s"} <= set(raw.hkeys(health_of))
    ledger.run(dead_letters.discard(ledger.core, [letter.id for letter in letters(ledger)]))
    ledger.run(remove_spout(ledger.core, "s"))
    sender._trouble_note.write(ledger, "late")  # of a step that was under way
    ledger.store.send([sender._sent("1-1")])
    assert not {b"sent:s", b"unsent:s"} & set(raw.hkeys(health_of))


def test_a_sender_that_is_behind_takes_no_other_back(
    ledger: Ledger, place: Place, sender: LetterSender
) -> None:
    bury(ledger, 9)
    sender.step()
    [first, *_] = letters(ledger)
    for behind in ("1-7", first.number):
        assert ledger.store.send([sender._sent(behind)]) == [0]
    assert (sender.step(), place.names) == (0, list(range(9)))
