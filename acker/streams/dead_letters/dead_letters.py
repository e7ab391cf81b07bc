"""Dead letters: rows of a spout whose last attempt was not acked. They are kept until replayed or discarded.

For a service, which runs operations on a store of its own (`Store.run`, `AsyncStore.run`):

    page = store.run(dead_letters.page(core, Filter(step="prices"), cursor=cursor))  # GET .../dead-letters
    store.run(dead_letters.groups(core))                                             # .../groups
    store.run(dead_letters.replay(core, letter_id))                                  # POST .../{id}/replay
    store.run(dead_letters.discard(core, [letter_id]))
    store.run(dead_letters.replay_some(core, Filter(cause="...")))         # those of a filter, step by step

Ids are text that is safe in a URL. Nothing here needs Spark, only pyarrow. Errors: ValidationError for a
malformed id or filter, UnknownDeadLetter, and TrackRejected or SpoutPendingFull where there is no room for a
replay: nothing has changed then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from acker.errors import SpoutPendingFull, TrackRejected, UnknownDeadLetter, UnreadableRecord, ValidationError
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_name
from acker.ledger.settings.settings import check_number
from acker.store import keys
from acker.store.operation import Operation, command
from acker.streams.dead_letters import pages, replays
from acker.streams.dead_letters.filters import STATUSES, Filter, cause
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
    """What a step has replayed. anchors: id -> the anchor of its new tree. refused: what cannot be.

    waits: why it went no further, "" where nothing hinders it. cursor: where the next step goes on, None at
    the end.
    """

    anchors: dict[str, int]
    refused: tuple[Refusal, ...]
    waits: str
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Discarded:
    """How many dead letters a step has discarded, and where the next one goes on: None at the end."""

    count: int
    cursor: str | None


def counts(core: Core) -> Operation[dict[str, int]]:
    """Spout -> how many dead letters it has, where it has any."""
    yield from core.refresh_spouts()
    names = sorted(core.spouts)
    if not names:
        return {}
    found = yield [command("XLEN", keys.Spout(core.config.name, name).dead) for name in names]
    return {name: int(number) for name, number in zip(names, found, strict=True) if number}


def count(core: Core, spout: str | None = None) -> Operation[int]:
    """How many dead letters a spout has, or all."""
    if spout is None:
        return sum((yield from counts(core)).values())
    [found] = yield [command("XLEN", keys.Spout(core.config.name, check_name(spout, "spout")).dead)]
    return int(found)


def get(core: Core, letter: str) -> Operation[DeadLetter]:
    """One dead letter. Raises ValidationError, UnknownDeadLetter, UnreadableRecord."""
    found = yield from dead_letter_store.head(core, letter)
    [stored] = yield from dead_letter_store.stored(core, [found])
    if stored is None:
        raise dead_letter_store.unknown(core, letter)
    if isinstance(stored, UnreadableRecord):
        raise stored
    return dead_letter_store.whole(found, stored)


def discard(core: Core, letters: Sequence[str]) -> Operation[list[str]]:
    """Drops dead letters for good, up to 1,000; returns the ids of which there was none, or none any more."""
    check_number(len(letters), "dead letters to discard", 1, dead_letter_store.READ, int)
    asked = dict.fromkeys(letters)
    by_spout: dict[str, list[str]] = {}
    for letter in asked:
        number, spout = dead_letter_store.split(letter)
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
    """Drops for good the next `limit` (1 to 500) dead letters of a filter that are there now.

    cursor: where the step before ended. until: Unix seconds; later ones are left out (`GroupPage.until`).
    Any number may do it at once: each counts what it has dropped itself. Raises ValidationError.
    """
    check_number(limit, "limit", 1, STEP, int)
    position = yield from pages.start(core, asked, cursor, until)
    found, rest = yield from pages.scan(core, asked, position, limit)
    dropped = 0
    for spout, numbers in _by_spout(found).items():
        dropped += len((yield from replays.discard(core, spout, numbers)))
    return Discarded(dropped, pages.encoded(rest, asked))


def replay(core: Core, letter: str) -> Operation[int]:
    """Gives a dead letter a new tree, as its first attempt, and publishes its row; returns the new anchor.

    Takes effect once, also if two ask for it: the second gets UnknownDeadLetter. Each of several at the same
    moment may find the last room, and is replayed.
    """
    found = yield from dead_letter_store.head(core, letter)
    done = yield from replays.replay(core, [found])
    if done is None:
        raise UnknownDeadLetter(f"dead letter {letter!r} could not be replayed: {OTHERS}")
    if done.refused:
        raise ValidationError(done.refused[0].why)
    if letter not in done.anchors:
        raise dead_letter_store.unknown(core, letter)
    return done.anchors[letter]


def replay_some(
    core: Core, asked: Filter, *, limit: int = STEP, cursor: str | None = None, until: float | None = None
) -> Operation[Replayed]:
    """Replays the next `limit` (1 to 500) dead letters of a filter that are there now.

    cursor, until: as of `discard_some`. Where there is no room for all of them it goes as far as there is,
    and says in `waits` why no further: its cursor goes on from there. Any number may do it at once: each dead
    letter is replayed once. Raises ValidationError.
    """
    check_number(limit, "limit", 1, STEP, int)
    position = yield from pages.start(core, asked, cursor, until)
    found, rest = yield from pages.scan(core, asked, position, limit)
    fits = yield from dead_letter_store.fitting(core, found)
    if fits < len(found):
        found = found[:fits]
        rest = yield from pages.after(core, position, found[-1])
    anchors: dict[str, int] = {}
    refused: list[Refusal] = []
    place = 0
    while place < len(found):
        part = [one for one in found[place:] if one.spout == found[place].spout]
        try:
            done = yield from replays.replay(core, part)
            waits = "" if done else OTHERS
        except (SpoutPendingFull, TrackRejected) as error:
            done, waits = None, str(error)
        if done is None:
            back = (yield from pages.after(core, position, found[place - 1])) if place else position
            return Replayed(anchors, tuple(refused), waits, pages.encoded(back, asked))
        anchors |= done.anchors
        refused += done.refused
        place += done.taken
    return Replayed(anchors, tuple(refused), "", pages.encoded(rest, asked))


def _by_spout(found: Sequence[Head]) -> dict[str, list[str]]:
    spouts: dict[str, list[str]] = {}
    for one in found:
        spouts.setdefault(one.spout, []).append(one.number)
    return spouts
