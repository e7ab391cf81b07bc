"""Sends the dead letters of a spout to a place of the user's as well, in order, at least once each.

The log of dead letters is read by numbers that ascend, and the store has the number of the last letter that
was sent. A place that is away makes its letters wait in the log; it is asked again, ever later up to a
minute, and the reason is shown among the troubles of the topology. Letters that are replayed or discarded
before they were sent are left out. Any number of processes may send at once, and die at any point: letters
come again then.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from acker.errors import UnreadableRecord, is_interrupt, text_of
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger, follow
from acker.ledger.fields import Row
from acker.ledger.settings.config import check_name
from acker.ledger.slabs.causes import log_error, said_by
from acker.store import keys, loops
from acker.store.loops import Pace
from acker.store.operation import Operation, Request, command
from acker.store.records import passing_over
from acker.streams.sources import dead_letter_store, scripts
from acker.streams.sources.attempts import History
from acker.streams.sources.dead_letter_store import DeadLetter, Head, StoredRow
from acker.streams.spouts.removal_watch import RemovalWatch
from acker.streams.spouts.wait_notes import WaitNote

MOST = 1_000
"""Most letters that one call writes."""
_PARTS = 16
_WAIT, _LONGEST_WAIT = 1.0, 60.0
_NUMBER = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}\Z")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentLetter(Head):
    """A dead letter on its way. row: None if its row is left out."""

    row: Row | None
    history: History

    @classmethod
    def of(cls, letter: Head) -> "SentLetter":
        """A letter, with its row if that is there."""
        facts = {each.name: getattr(letter, each.name) for each in fields(Head)}
        if isinstance(letter, DeadLetter):
            return cls(**facts, row=letter.row, history=letter.history)
        return cls(**facts, row=None, history=())


Send: TypeAlias = Callable[[Sequence[SentLetter]], object]
"""Writes letters."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The next letters to send. last: the number of the last of them; None if there are none."""

    letters: list[SentLetter]
    last: str | None


class LetterSender:
    """Sends the dead letters of a spout to a place, by a function that writes them.

    A letter that the place does not take by itself is written without its row, and its row stays in the
    store: so it keeps no others.

    Args:
        ledger: The ledger of the topology.
        spout: The spout.
        send: The function that writes letters, at most `MOST`. It may raise: then they wait, and it is called
            again, with fewer.

    Attributes:
        trouble: The reason why letters wait, or "".
    """

    def __init__(self, ledger: Ledger, spout: str, send: Send) -> None:
        self.ledger = ledger
        self.spout = check_name(spout, "spout")
        self.send = send
        self.trouble = ""
        self._most = MOST
        self._failures = 0
        self._trouble_note = WaitNote("unsent", spout, f"dead letters of spout {spout!r}")
        self._watch = RemovalWatch(f"writes no dead letters of its spout {spout!r}")

    @property
    def removed(self) -> bool:
        """True once the topology was removed and made anew: it sends nothing any more."""
        return self._watch.removed

    def step(self) -> int:
        """Sends the next letters; returns their number. Errors of the function are logged.

        Raises:
            AckerError: The store, or the topology, is away.
        """
        self.ledger = follow(self.ledger, self.ledger.store, self.ledger.config.name, create=False)
        if not self.ledger.config.ackers:
            return 0
        page = self.ledger.run(_next(self.ledger.core, self.spout, self._most))
        if self._watch.look(self.ledger):  # behind the reading: it may be of a topology that was made since
            return 0
        error = self._try(page.letters) if page.letters else None
        if error is not None and len(page.letters) == 1:
            error = self._send_without_row(page.letters[0], error)
        if error is not None:
            self._failed(error, len(page.letters))
            return 0
        if page.last is not None:
            self.ledger.store.send([self._sent(page.last)])
        self._most, self._failures, self.trouble = min(MOST, 2 * self._most), 0, ""
        self._trouble_note.write(self.ledger, self.trouble)
        return len(page.letters)

    def run(self, stop: threading.Event) -> None:
        """Sends letters as they come, until `stop` is set, and waits for a store that is away."""
        loops.run(stop, self._round, Pace(_log, f"dead letters of spout {self.spout!r} wait", 0.2, 5.0))

    def _round(self) -> float | None:
        return 0.0 if self.step() else min(_LONGEST_WAIT, _WAIT * 2.0**self._failures)

    def _try(self, letters: Sequence[SentLetter]) -> BaseException | None:
        """Sends letters; returns what the function raises."""
        try:
            with self._trouble_note.calling(self.ledger, "`dead_letters_to`"):
                self.send(letters)
        except BaseException as error:  # user code may raise anything, even SystemExit
            if is_interrupt(error):
                raise
            return error
        return None

    def _send_without_row(self, letter: SentLetter, error: BaseException) -> BaseException | None:
        """Sends a letter that has failed without its row; returns the error if the place is away."""
        if self._try([replace(letter, row=None)]) is not None:
            return error
        # The place is here. Was it away before, or is it the row?
        if (again := self._try([letter])) is not None:
            message = "dead letter %s was written without its row, which stays in the store: %s"
            log_error(_log, again, message, letter.id, text_of(again) or said_by(again))
        return None

    def _failed(self, error: BaseException, count: int) -> None:
        reason = said_by(error)
        if reason != self.trouble:
            what = text_of(error) or reason
            log_error(_log, error, "dead letters of spout %r wait, and are sent again: %s", self.spout, what)
        self.trouble = reason
        self._most = max(1, count // _PARTS)
        self._failures = min(self._failures + 1, 10)
        self._trouble_note.write(self.ledger, self.trouble)

    def _sent(self, number: str) -> Request:
        """The note of the last letter that was sent."""
        return scripts.note_wait(self.ledger.config.name, "sent", self.spout, number)


def _next(core: Core, spout: str, most: int) -> Operation[_Page]:
    """The next letters of a spout that were not sent yet."""
    [noted] = yield [command("HGET", keys.health(core.config.name), f"sent:{spout}")]
    after = noted.decode() if noted and _NUMBER.match(noted) else dead_letter_store.FIRST
    read = yield from dead_letter_store.heads(core, spout, after, "+", most)
    heads = read.found[: (yield from dead_letter_store.fitting(core, read.found))]
    stored = yield from dead_letter_store.stored(core, heads)
    letters = [_letter(core, head, row) for head, row in zip(heads, stored, strict=True) if row is not None]
    if not read.count:
        return _Page([], None)
    return _Page(letters, heads[-1].number if len(heads) < len(read.found) else read.last)


def _letter(core: Core, head: Head, row: StoredRow | UnreadableRecord) -> SentLetter:
    """A letter with its row; without it if the row cannot be read, which is logged."""
    with passing_over(core.config.name):
        if isinstance(row, UnreadableRecord):
            raise row
        return SentLetter.of(dead_letter_store.load_letter(head, row))
    return SentLetter.of(head)
