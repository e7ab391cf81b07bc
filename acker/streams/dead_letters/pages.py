"""Reads dead letters by a filter: pages with their rows, and groups with their counts.

A page looks at a bounded number of letters, so it may have fewer than asked for, or none, and still have a
cursor: go on until there is none. Letters that come after the first page was begun are left out. So replaying
comes to an end, even if all letters fail again.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias, get_args, overload

from acker.errors import UnreadableRecord, ValidationError, shown
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor, Instant, Named
from acker.ledger.settings.settings import check_number
from acker.ledger.slabs.masked import cause
from acker.ledger.trees import cursors
from acker.store import keys
from acker.store.operation import Operation, Request
from acker.store.records import MOST_COUNT, Bounds, Codec, Matching, passing_over
from acker.store.replies import seconds
from acker.streams.dead_letters.filters import Filter
from acker.streams.sources import dead_letter_store
from acker.streams.sources.dead_letter_store import DeadLetter, Head

PAGE = 1_000
"""Most dead letters of a page."""
LOOK = 10_000
"""Most dead letters that a page looks at."""
GROUPS = 1_000
"""Groups after which a page of them ends."""
By: TypeAlias = Literal["cause", "step", "status"]
BY: tuple[By, ...] = get_args(By)
_NUMBER = Annotated[str, Matching("[0-9]{1,20}-[0-9]{1,20}")]
_CURSOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class LettersPage:
    """A page of dead letters: by spout, and for each the oldest first."""

    letters: Annotated[tuple[DeadLetter, ...], Named("dead_letters")]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters, or failed trees, that have something in common; null for what they are not grouped by."""

    cause: Annotated[str | None, "The reason without numbers and quoted text."]
    step: Annotated[str | None, "That gave the reason; empty where none is known."]
    status: str | None
    count: Count
    oldest: Instant
    newest: Instant
    reason: Annotated[str, "In full, of the newest."]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups of the dead letters that a page looked at, largest first. The next page is to be added to it."""

    groups: tuple[Group, ...]
    until: Annotated[Instant, "Up to when they are counted: for what is done to a group then."]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class LettersPosition:
    """The position of a reading: after a number of a spout's dead letters.

    Attributes:
        until: The end of the reading, in ms of their numbers.
        spout: The spout.
        after: The number after which it goes on.
        end: The last number of that spout when the reading reached it. Numbers may go on within a ms for as
            long as a clock that was set back has not caught up.
    """

    until: Annotated[int, Bounds(0, MOST_COUNT)]
    spout: Annotated[str, Bounds(0, 64)] = ""
    after: _NUMBER = dead_letter_store.FIRST
    end: _NUMBER = dead_letter_store.FIRST


_CURSOR: Codec[tuple[str, LettersPosition]] = Codec(tuple[str, LettersPosition], "a cursor", _CURSOR_BYTES)


def start(
    core: Core, asked: Filter, cursor: str | None, until: float | None = None
) -> Operation[LettersPosition]:
    """The position at which a page begins. until: the end of a first page, in Unix seconds; None for now.

    Raises ValidationError.
    """
    if not isinstance(asked, Filter):
        raise ValidationError(f"dead letters: expected a Filter, got {shown(asked)}")
    if cursor is not None:
        return decoded(cursor, asked)
    if until is not None:
        check_number(until, "until", 0, MOST_COUNT / 1000, float)
        return LettersPosition(int(until * 1000))
    names = yield from _spouts(core, asked)
    there = yield from dead_letter_store.newest(core, names)
    now = int((yield from _now(core)) * 1000)
    return LettersPosition(max([now, *(int(number.partition("-")[0]) for number in there)]))


def scan(
    core: Core, asked: Filter, position: LettersPosition, most: int, look: int = LOOK
) -> Operation[tuple[list[Head], LettersPosition | None]]:
    """The next dead letters of a filter, `most` at most, and the position after them; None at the end.

    look: the most letters to look at.
    """
    letters, rest, _ = yield from search(core, asked, position, most, look)
    return letters, rest


def search(
    core: Core, asked: Filter, position: LettersPosition, most: int, look: int = LOOK
) -> Operation[tuple[list[Head], LettersPosition | None, int]]:
    """Scans like `scan`, and also returns the number of letters that it looked at."""
    room = look
    names = yield from _spouts(core, asked)
    now = yield from _now(core)
    letters: list[Head] = []
    for name in names:
        if name < position.spout:
            continue
        if name != position.spout:
            [end] = yield from dead_letter_store.newest(core, [name], str(position.until))
            position = LettersPosition(position.until, name, dead_letter_store.FIRST, end)
        while position.after != position.end:
            if not look:
                return letters, position, room
            count = min(look, dead_letter_store.READ)
            read = yield from dead_letter_store.heads(core, name, position.after, position.end, count)
            passed = position.after
            for letter in read.found:
                if asked.takes(letter, now):
                    if len(letters) == most:
                        return letters, replace(position, after=passed), room - look
                    letters.append(letter)
                passed = letter.number
            position = replace(position, after=read.last)
            look -= read.count
            if read.count < count:
                break
    return letters, None, room - look


def page(
    core: Core, asked: Filter | None = None, *, limit: int = 100, cursor: str | None = None
) -> Operation[LettersPage]:
    """A page of at most `limit` (1 to 1,000) dead letters with their rows, of 16 MiB or so at most.

    asked: the filter; None for all. A letter that cannot be read is passed over, and logged with its id.
    Raises ValidationError, also for a cursor of another query.
    """
    check_number(limit, "limit", 1, PAGE, int)
    asked = asked or Filter()
    position = yield from start(core, asked, cursor)
    heads, rest = yield from scan(core, asked, position, limit)
    fits = yield from dead_letter_store.fitting(core, heads)
    if fits < len(heads):
        heads = heads[:fits]
        rest = yield from after(core, position, heads[-1])
    letters = []
    for head, stored in zip(heads, (yield from dead_letter_store.stored(core, heads)), strict=True):
        with passing_over(core.config.name):
            if isinstance(stored, UnreadableRecord):
                raise stored
            if stored is not None:  # it was not replayed or discarded meanwhile
                letters.append(dead_letter_store.load_letter(head, stored))
    return LettersPage(tuple(letters), encoded(rest, asked))


def after(core: Core, position: LettersPosition, last: Head) -> Operation[LettersPosition]:
    """The position after a dead letter, for a reading that began at a position."""
    if last.spout == position.spout:
        return replace(position, after=last.number)
    [end] = yield from dead_letter_store.newest(core, [last.spout], str(position.until))
    return LettersPosition(position.until, last.spout, last.number, end)


def groups(
    core: Core, asked: Filter | None = None, *, by: Sequence[By] = BY, cursor: str | None = None
) -> Operation[GroupPage]:
    """Counts dead letters by cause, step and status, largest group first: a page of 10,000 letters.

    by: the fields to group by. Raises ValidationError and UnreadableRecord, like `page`.
    """
    if not by or len(set(by)) < len(by) or not set(by) <= set(BY):
        raise ValidationError(f"by: expected some of {', '.join(BY)}, each once, got {', '.join(by)!r:.100}")
    asked = asked or Filter()
    position = yield from start(core, asked, cursor)
    by_key: dict[tuple[object, ...], Group] = {}
    rest: LettersPosition | None = position
    look = LOOK
    while rest is not None and look and len(by_key) < GROUPS:
        heads, rest = yield from scan(core, asked, rest, dead_letter_store.READ, dead_letter_store.READ)
        look -= dead_letter_store.READ
        _add(by_key, (_alone(one, by) for one in heads))
    return GroupPage(_largest_first(by_key), position.until / 1000, encoded(rest, asked))


def add_up(pages: Iterable[GroupPage]) -> tuple[Group, ...]:
    """The groups of several pages as one, largest first."""
    return summed(group for page_of_groups in pages for group in page_of_groups.groups)


def summed(parts: Iterable[Group]) -> tuple[Group, ...]:
    """Groups of which several may be parts of one, as one each, largest first."""
    by_key: dict[tuple[object, ...], Group] = {}
    _add(by_key, parts)
    return _largest_first(by_key)


def _alone(letter: Head, by: Sequence[By]) -> Group:
    return Group(
        cause(letter.reason) if "cause" in by else None,
        letter.step if "step" in by else None,
        letter.status if "status" in by else None,
        1,
        letter.at,
        letter.at,
        letter.reason,
    )


def _add(by_key: dict[tuple[object, ...], Group], more: Iterable[Group]) -> None:
    for added in more:
        key = added.cause, added.step, added.status
        present = by_key.get(key, added)
        if present is added:
            by_key[key] = added
            continue
        latest = max(present, added, key=lambda group: group.newest)
        by_key[key] = Group(
            *key, present.count + added.count, min(present.oldest, added.oldest), latest.newest, latest.reason
        )


def _largest_first(by_key: dict[tuple[object, ...], Group]) -> tuple[Group, ...]:
    return tuple(sorted(by_key.values(), key=lambda one: (-one.count, -one.newest)))


def _spouts(core: Core, asked: Filter) -> Operation[list[str]]:
    if asked.spout is not None:
        return [asked.spout]
    yield from core.refresh_spouts()
    return sorted(core.spouts)


def _now(core: Core) -> Operation[float]:
    """Unix seconds by the store's clock."""
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    return seconds(instant)


# Cursors


@overload
def encoded(at: LettersPosition, asked: Filter) -> str: ...
@overload
def encoded(at: LettersPosition | None, asked: Filter) -> str | None: ...
def encoded(at: LettersPosition | None, asked: Filter) -> str | None:
    """A position as text that is safe in a URL, for the same filter; None for none."""
    if at is None:
        return None
    packed = _CURSOR.dump((_digest(asked), at))
    return cursors.as_text(packed.encode())


def decoded(cursor: object, asked: Filter) -> LettersPosition:
    """The position of a cursor. Raises ValidationError if it is none of this filter."""
    digest, at = cursors.read(_CURSOR, cursor, _CURSOR_BYTES)
    if digest != _digest(asked):
        raise cursors.malformed()
    return at


def _digest(asked: Filter) -> str:
    return hashlib.sha256(repr(asked.parts()).encode("utf-8", "surrogatepass")).hexdigest()[:8]
