"""Activity: the latest writes by people and programs to a topology, over REST or the command line.

It tells an operator who has acted before, on what, and with what result. It is no part of the ledger: an
entry that cannot be written is logged, and holds up no write.
"""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from acker.errors import AckerError, ValidationError, shown
from acker.inspect import scripts
from acker.ledger.calls.core import Core
from acker.ledger.fields import Count, Cursor, Examples, Instant
from acker.store import keys
from acker.store.operation import Operation, Reply, command
from acker.store.records import Bounds, Matching, Record, passing_over
from acker.store.replies import pairs, whole

MOST = 1_000
"""Most entries of a topology: older ones go, and marks among them are kept beside."""
MOST_MARKS = 200
"""Most marks that are kept beside, once other writes have pushed them out."""
NAMED = 10
"""Most ids that an entry names."""
PAGE = 200
"""Most entries of a page."""
Action: TypeAlias = Literal[
    "create", "configure", "remove", "rotate-keys", "set-thresholds", "mute", "unmute", "fail", "reset",
    "replay", "discard", "declare-subscription", "rename-subscription", "remove-subscription", "give-back",
    "remove-spout", "pause-spout", "resume-spout", "cancel-call", "remove-function", "mark",
]  # fmt: skip
ACTIONS: tuple[Action, ...] = get_args(Action)
COUNTED: frozenset[Action] = frozenset({
    "fail", "reset", "replay", "discard", "remove-subscription", "give-back", "rotate-keys", "cancel-call",
    "set-thresholds",
})  # fmt: skip
"""Writes that change a number of things. Another one is done, or is not."""
Via: TypeAlias = Literal["rest", "cli"]
_WHO, _NAME, _VALUE, _PAIRS, _REASON, _RESULT = 200, 32, 300, 10, 1_000, 300
"""Most characters of each text, and most values of a target."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Write(Record, label="a write of an activity", most=1 << 16):
    """A write, as it is stored."""

    who: Annotated[str, Bounds(0, _WHO)]
    proved: bool
    via: Annotated[str, Matching("rest|cli")]
    action: Annotated[str, Matching("[a-z-]{1,40}")]
    target: Annotated[
        Mapping[Annotated[str, Bounds(1, _NAME)], Annotated[str, Bounds(0, _VALUE)]], Bounds(0, _PAIRS)
    ]
    reason: Annotated[str, Bounds(0, _REASON)]
    result: Annotated[str, Bounds(0, _RESULT)]
    done: bool


@dataclass(frozen=True, slots=True)
class Activity:
    """A write by a person or a program. Calls on one filter, piece by piece, are one."""

    id: Annotated[str, "The later, the greater.", Examples("1795230245678-0")]
    at: Annotated[Instant, "Of its latest call, by the store's clock."]
    began: Annotated[Instant, "Of its first call."]
    who: Annotated[
        str, Examples("ann"), "The token's name; else an address, or the user and host of a command."
    ]
    proved: Annotated[bool, "True where a token says so; nobody has proved the user of a command."]
    via: Annotated[Via, "REST, which the dashboard uses too, or the command line."]
    action: Annotated[str, Examples("replay")]
    target: Annotated[Mapping[str, str], "What was named: a filter, ids, settings; long values are cut."]
    count: Annotated[
        Count | None,
        "Of trees, dead letters, segments and the like that it has changed; null where the action has none.",
    ]
    calls: Annotated[Count, "How many calls it was."]
    reason: Annotated[str, "As the author gave it; empty without one."]
    result: Annotated[str, "In words."]
    done: Annotated[bool, "False where it was refused, or ended by an error."]


@dataclass(frozen=True, slots=True)
class ActivityPage:
    """A page of a topology's activity."""

    activity: Annotated[tuple[Activity, ...], "The latest first."]
    cursor: Cursor = None


@dataclass(slots=True)
class Noting:
    """A write that is under way; its face sets what came of it, and notes it when it ends.

    Attributes:
        who: The author: a token's name, an address, or user and host.
        proved: True where a token says so.
        via: The face.
        action: The kind of write.
        target: The filter, ids or settings that it names.
        reason: The author's reason, or "".
        run: Pieces with the same run are one entry; "": the write has one piece.
        count: The number of things that it has changed.
        result: The result in words.
        done: False where it was refused, or ended by an error.
    """

    who: str
    proved: bool
    via: Via
    action: Action
    target: Mapping[str, object]
    reason: str = ""
    run: str = ""
    count: int = 0
    result: str = ""
    done: bool = True

    @property
    def counts(self) -> bool:
        """False for a piece of a run that has changed nothing, and has nothing to tell."""
        return bool(self.count or self.result or not self.run)

    def failed(self, error: BaseException) -> bool:
        """Takes the error that has ended the write; False if it was never begun, as of a bad request."""
        self.done = False
        self.result = str(error) if isinstance(error, AckerError) else "interrupted"
        return not isinstance(error, ValidationError)


def note(core: Core, noted: Noting) -> Operation[None]:
    """Adds a write to the activity of a topology. What cannot be written is logged, and left out."""
    try:
        yield from add(core, noted)
    except AckerError as error:
        _log.error(
            "%s: %s of %d by %s was carried out, and is not in the activity: %s",
            core.config.name, noted.action, noted.count, noted.who, error,
        )  # fmt: skip


def add(core: Core, noted: Noting, key: Sequence[bytes] = ()) -> Operation[str]:
    """Adds a write to the activity of a topology; returns the entry's id, "" if the topology is gone.

    key: the record of an idempotency key: a further call under it returns the id of the first one's entry.
    """
    write = Write(
        _cut(noted.who, _WHO),
        noted.proved,
        noted.via,
        noted.action,
        {_cut(name, _NAME): _cut(_text(value), _VALUE) for name, value in [*noted.target.items()][:_PAIRS]},
        _cut(noted.reason, _REASON),
        _cut(noted.result, _RESULT),
        noted.done,
    )
    call, name = secrets.token_hex(8), core.config.name
    [entry] = yield [
        scripts.note_activity(
            name, MOST, MOST_MARKS, mark=noted.action == "mark", call=call, run=noted.run, count=noted.count,
            write=write.dump(), key=key,
        )
    ]  # fmt: skip
    return bytes(entry).decode()


def page(
    core: Core, *, action: str | None = None, who: str = "", limit: int = 50, cursor: str | None = None
) -> Operation[ActivityPage]:
    """Returns a page of the writes to a topology, the latest first.

    Args:
        core: The topology.
        action: A filter: one of `ACTIONS`.
        who: A filter: a part of the author.
        limit: Most entries, 1 to 200.
        cursor: The cursor of the previous page.

    Raises:
        ValidationError: For a wrong value, or another call's cursor.
    """
    if isinstance(limit, bool) or not 1 <= limit <= PAGE:
        raise ValidationError(f"limit: expected a whole number from 1 to {PAGE}, got {shown(limit)}")
    if action is not None and action not in ACTIONS:
        raise ValidationError(f"action: expected one of {', '.join(ACTIONS)}, got {shown(action)}")
    top = "+" if cursor is None else f"({_checked(cursor)}"
    writes: list[Activity] = []
    name = core.config.name
    kept = [(keys.activity(name), MOST)]
    if action in (None, "mark"):  # a mark that is pushed out keeps its id, and all marks beside are earlier
        kept.append((keys.activity(name, "chart_marks"), MOST_MARKS))
    for stream, most in kept:
        for _ in range(0, most, PAGE):
            [entries] = yield [command("XREVRANGE", stream, top, "-", "COUNT", PAGE)]
            for entry_id, fields in entries:
                top = f"({entry_id.decode()}"
                entry = _parse(core, entry_id, fields)
                if entry is None or action not in (None, entry.action) or who not in entry.who:
                    continue
                writes.append(entry)
                if len(writes) == limit:
                    return ActivityPage(tuple(writes), entry.id)
            if len(entries) < PAGE:
                break
    return ActivityPage(tuple(writes))


def _parse(core: Core, entry_id: bytes, fields: Reply) -> Activity | None:
    """An entry; None where it cannot be read."""
    where = f"activity of topology {core.config.name!r}"
    with passing_over(where, f"entry {entry_id!r}"):
        stored = pairs(fields)
        write = Write.load(stored[b"write"])
        at = int(entry_id.partition(b"-")[0])
        began = whole(stored[b"began"], "began")
        return Activity(
            entry_id.decode(),
            at / 1000,
            min(at, max(0, began)) / 1000,
            write.who,
            write.proved,
            "rest" if write.via == "rest" else "cli",
            write.action,
            write.target,
            whole(stored[b"count"], "count") if write.action in COUNTED else None,
            whole(stored[b"calls"], "calls"),
            write.reason,
            write.result,
            write.done,
        )
    return None


def _checked(cursor: str) -> str:
    milliseconds, dash, number = cursor.partition("-")
    for part in (milliseconds, number):
        if not (dash and part.isascii() and part.isdigit() and len(part) <= 18):
            raise ValidationError(f"cursor: expected one of the page before, got {shown(cursor)}")
    return cursor


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else str(value)


def _cut(text: str, most: int) -> str:
    text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be stored
    return text if len(text) <= most else f"{text[: most - 1]}…"
