"""Dead letters: rows of a spout whose last attempt was not acked. They are kept until replayed or discarded.

For a service, which runs operations on a store of its own (`Store.run`, `AsyncStore.run`):

    page = store.run(dead_letters.page(core, Filter(step="prices"), cursor=cursor))  # GET .../dead-letters
    store.run(dead_letters.groups(core))                                             # .../groups
    store.run(dead_letters.replay(core, letter_id))                                  # POST .../{id}/replay
    store.run(dead_letters.discard(core, [letter_id]))
    store.run(dead_letters.replay_some(core, Filter(cause="...")))                   # step by step

Ids are text that is safe in a URL. Nothing here needs Spark, only pyarrow. Errors: ValidationError for a
malformed id or filter, UnknownDeadLetter, and TrackRejected or SpoutPendingFull if there is no room for a
replay: nothing has changed then.

Terms: a tree is all that comes of one record; an anchor is the number of a tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from acker.errors import SpoutPendingFull, TrackRejected, UnknownDeadLetter, UnreadableRecord, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.masked import cause
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.dead_letters import pages, replays
from acker.streams.dead_letters.filters import STATUSES, Filter
from acker.streams.dead_letters.pages import BY, PAGE, By, Group, GroupPage, LettersPage, add_up, groups, page
from acker.streams.dead_letters.replays import Refusal
from acker.streams.sources import dead_letter_store
from acker.streams.sources.dead_letter_store import DeadLetter, Head

__all__ = [
    "BY", "PAGE", "STATUSES", "STEP", "By", "DeadLetter", "Discarded", "Filter", "Group", "GroupPage", "Head",
    "LettersPage", "Refusal", "Replayed", "add_up", "cause", "count", "counts", "discard", "discard_some",
    "get", "groups", "page", "replay", "replay_some",
]  # fmt: skip

OTHERS = "others are replaying, too"
STEP = 500
"""Most dead letters that one step replays or discards."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a step of replays.

    Attributes:
        anchors: Id -> the anchor of its new tree.
        refused: Letters that cannot be replayed.
        waits: The reason why the step went no further, or "".
        cursor: The start of the next step; None at the end.
    """

    anchors: dict[str, int]
    refused: tuple[Refusal, ...]
    waits: str
    cursor: str | None

    @property
    def count(self) -> int:
        """The number of replayed letters."""
        return len(self.anchors)


@dataclass(frozen=True, slots=True)
class Discarded:
    """The number of discarded dead letters, and the start of the next step; None at the end."""

    count: int
    cursor: str | None


def counts(core: Core) -> Operation[dict[str, int]]:
    """The number of dead letters of each spout that has some."""
    yield from core.refresh_spouts()
    names = sorted(core.spouts)
    if not names:
        return {}
    found = yield [command("XLEN", keys.Spout(core.config.name, name).dead) for name in names]
    return {name: int(number) for name, number in zip(names, found, strict=True) if number}


def count(core: Core, spout: str | None = None) -> Operation[int]:
    """The number of dead letters of a spout, or of all."""
    if spout is None:
        return sum((yield from counts(core)).values())
    [found] = yield [command("XLEN", keys.Spout(core.config.name, check_name(spout, "spout")).dead)]
    return int(found)


def get(core: Core, letter: str) -> Operation[DeadLetter]:
    """Returns a dead letter. Raises ValidationError, UnknownDeadLetter, UnreadableRecord."""
    head = yield from dead_letter_store.head(core, letter)
    [stored] = yield from dead_letter_store.stored(core, [head])
    if stored is None:
        raise dead_letter_store.unknown_letter(core, letter)
    if isinstance(stored, UnreadableRecord):
        raise stored
    return dead_letter_store.load_letter(head, stored)


def discard(core: Core, letters: Sequence[str]) -> Operation[list[str]]:
    """Drops dead letters for good, up to 1,000; returns the ids that do not, or no longer, exist."""
    check_number(len(letters), "dead letters to discard", 1, dead_letter_store.READ, int)
    asked = dict.fromkeys(letters)
    by_spout: dict[str, list[str]] = {}
    for letter in asked:
        number, spout = dead_letter_store.split_id(letter)
        by_spout.setdefault(spout, []).append(number)
    dropped: set[str] = set()
    for spout, numbers in by_spout.items():
        for first in range(0, len(numbers), STEP):
            gone = yield from replays.discard(core, spout, numbers[first : first + STEP])
            dropped |= {f"{number}@{spout}" for number in gone}
    return [letter for letter in asked if letter not in dropped]


def discard_some(
    core: Core, asked: Filter, *, limit: int = STEP, cursor: str | None = None, until: float | None = None
) -> Operation[Discarded]:
    """Drops for good the next `limit` (1 to 500) dead letters of a filter that exist now.

    Any number of processes may do it at once: each counts the letters that it has dropped itself.

    Args:
        core: The ledger.
        asked: The filter.
        limit: The most letters to drop.
        cursor: The end of the step before.
        until: Unix seconds; later letters are left out (`GroupPage.until`).

    Raises:
        ValidationError: An argument is out of range, or the cursor belongs to another filter.
    """
    check_number(limit, "limit", 1, STEP, int)
    position = yield from pages.start(core, asked, cursor, until)
    letters, rest = yield from pages.scan(core, asked, position, limit)
    dropped = 0
    for spout, numbers in _by_spout(letters).items():
        dropped += len((yield from replays.discard(core, spout, numbers)))
    return Discarded(dropped, pages.encoded(rest, asked))


def replay(core: Core, letter: str) -> Operation[int]:
    """Gives a dead letter a new tree, as its first attempt, and publishes its row; returns the new anchor.

    Takes effect once, also if two callers ask for it: the second gets UnknownDeadLetter. Several replays at
    the same moment may each find the last room, and take effect.
    """
    head = yield from dead_letter_store.head(core, letter)
    done = yield from replays.replay(core, [head])
    if done is None:
        raise UnknownDeadLetter(f"dead letter {letter!r} could not be replayed: {OTHERS}")
    if done.refused:
        raise ValidationError(done.refused[0].why)
    if letter not in done.anchors:
        raise dead_letter_store.unknown_letter(core, letter)
    return done.anchors[letter]


def replay_some(
    core: Core, asked: Filter, *, limit: int = STEP, cursor: str | None = None, until: float | None = None
) -> Operation[Replayed]:
    """Replays the next `limit` (1 to 500) dead letters of a filter that exist now.

    If there is no room for all of them, it replays as many as there is room for, says in `waits` why no
    further, and its cursor goes on from there. Any number of processes may do it at once: each dead letter is
    replayed once. Arguments and errors are the same as for `discard_some`.
    """
    check_number(limit, "limit", 1, STEP, int)
    position = yield from pages.start(core, asked, cursor, until)
    letters, rest = yield from pages.scan(core, asked, position, limit)
    fits = yield from dead_letter_store.fitting(core, letters)
    if fits < len(letters):
        letters = letters[:fits]
        rest = yield from pages.after(core, position, letters[-1])
    anchors: dict[str, int] = {}
    refused: list[Refusal] = []
    place = 0
    while place < len(letters):
        part = [one for one in letters[place:] if one.spout == letters[place].spout]
        try:
            done = yield from replays.replay(core, part)
            waits = "" if done else OTHERS
        except (SpoutPendingFull, TrackRejected) as error:
            done, waits = None, str(error)
        if done is None:
            back = (yield from pages.after(core, position, letters[place - 1])) if place else position
            return Replayed(anchors, tuple(refused), waits, pages.encoded(back, asked))
        anchors |= done.anchors
        refused += done.refused
        place += done.taken
    return Replayed(anchors, tuple(refused), "", pages.encoded(rest, asked))


def _by_spout(letters: Sequence[Head]) -> dict[str, list[str]]:
    spouts: dict[str, list[str]] = {}
    for letter in letters:
        spouts.setdefault(letter.spout, []).append(letter.number)
    return spouts
