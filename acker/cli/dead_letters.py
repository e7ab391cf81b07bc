"""`acker dead-letters`, `dead-letter`, `replay`, `discard`: what spouts gave up, and what becomes of it."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import facts, one_line, printable, row, show, show_json, step_batch, table
from acker.cli.statuses import Status
from acker.errors import (
    AckerError,
    SpoutPendingFull,
    TrackRejected,
    UnknownDeadLetter,
    UnknownSpout,
    ValidationError,
    needing_pyarrow,
)
from acker.inspect.plain import instant
from acker.ledger.client import Ledger

if TYPE_CHECKING:
    from acker.streams.spouts.attempts import Attempt
    from acker.streams.spouts.dead_letters import DeadLetter, Filter, Group

_Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="All of them.")]
_Spout = Annotated[str | None, typer.Option(help="Only those of this spout.", show_default=False)]
_Status = Annotated[str | None, typer.Option(help="Only failed, or expired ones.", show_default=False)]
_Step = Annotated[
    str | None, typer.Option(help="Only letters of this step; '' for no step.", show_default=False)
]
_Reason = Annotated[str, typer.Option(help="Only those with this in their reason.", show_default=False)]
_Cause = Annotated[
    str | None, typer.Option(help="Only those of this cause, as --groups shows it.", show_default=False)
]
_Stream = Annotated[
    str | None, typer.Option(help="Only letters replayed to this stream.", show_default=False)
]
_Older = Annotated[
    float | None, typer.Option(help="Only those given up so many seconds ago or more.", show_default=False)
]
_Newer = Annotated[
    float | None, typer.Option(help="Only those given up so many seconds ago or less.", show_default=False)
]


def _filter(
    spout: _Spout = None,
    status: _Status = None,
    step: _Step = None,
    reason: _Reason = "",
    cause: _Cause = None,
    stream: _Stream = None,
    older_than: _Older = None,
    newer_than: _Newer = None,
) -> Any:
    return _module().Filter(spout, status, step, reason, cause, stream, older_than, newer_than)


def _filtered(command: Callable[..., Status | None]) -> Callable[..., Status | None]:
    """A command that takes the options of a filter, and is given that as `asked`."""
    own, more = inspect.signature(command).parameters, inspect.signature(_filter).parameters
    places = [one for name, one in own.items() if name != "asked"]
    at = next((place for place, one in enumerate(places) if one.name == "url"), len(places))
    together = [*places[:at], *more.values(), *places[at:]]

    @functools.wraps(command)
    def run(**given: Any) -> Status | None:
        return command(asked=_filter(**{name: given.pop(name) for name in more}), **given)

    run.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in together}
    return run


@_filtered
def dead_letters(
    topology: TopologyName,
    asked: Any,
    groups: Annotated[
        bool, typer.Option("--groups", help="How many have each cause, step and status, in place of a list.")
    ] = False,
    output: Annotated[
        str,
        typer.Option(help="Write all of them to this file as JSON lines; - for stdout.", show_default=False),
    ] = "",
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 1,000.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended.", show_default=False)
    ] = None,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Rows whose last attempt was not acked: a page at a time, by groups, or all into a file."""
    letters = _module()
    if (groups or output) and (cursor or (groups and output)):
        raise ValidationError("--groups and --output take all: they go with no --cursor, and not together")
    ledger = _opened_for(asked, url, timeout, topology)
    if groups:
        _show_groups(ledger, asked, as_json)
        return
    if output:
        _export(ledger, asked, output)
        return
    found: list[DeadLetter] = []
    while True:
        page = ledger.run(letters.page(ledger.core, asked, limit=limit - len(found), cursor=cursor))
        found, cursor = found + list(page.letters), page.cursor
        if cursor is None or len(found) >= limit:
            break
    if as_json:
        show_json({"dead_letters": [_json().letter(one) for one in found], "cursor": cursor})
        return
    made = table("id", "message id", "status", "step", "attempts", "at", "reason", "row", right=("attempts",))
    for one in found:
        row(
            made,
            one.id,
            printable(one.message_id),
            one.status,
            step_batch(one.step, one.batch) or "-",
            one.attempts,
            instant(one.at),
            one.reason,
            _text(one),
        )
    show(made if found else "no dead letters")
    if cursor is not None:
        sys.stderr.write(f"more: --cursor {cursor}\n")


def dead_letter(
    topology: TopologyName,
    letter: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """One dead letter, by its id: how each attempt ended, and its row."""
    letters = _module()
    ledger = options.ledger(url, timeout, topology)
    one = ledger.run(letters.get(ledger.core, letter))
    if as_json:
        show_json(_json().letter(one))
        return
    show(
        facts(
            [
                ("id", one.id),
                ("spout", one.spout),
                ("message id", printable(one.message_id)),
                ("status", one.status),
                ("step", step_batch(one.step, one.batch) or "-"),
                ("reason", one.reason),
                ("attempts", one.attempts),
                ("at", instant(one.at)),
                ("anchor", f"{one.anchor}: acker tree {topology} {one.anchor}"),
                ("stream", one.stream),
                *((f"attempt {each.number}", _ended(each)) for each in one.history),
                ("row", _text(one)),
            ]
        )
    )


@_filtered
def replay(
    topology: TopologyName,
    asked: Any,
    ids: _Ids = None,
    everything: _All = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Give dead letters a new tree, as their first attempt, and publish their rows again.

    Exit status 5 where some could not be replayed, 4 where none of those named is there.
    """
    letters = _module()
    _check_named(ids, asked, everything)
    ledger = _opened_for(asked, url, timeout, topology)
    if ids:
        return _replay_named(ledger, list(dict.fromkeys(ids)), as_json)
    done, refused, cursor = dict[str, int](), [], None
    while True:
        found = ledger.run(letters.replay_some(ledger.core, asked, cursor=cursor))
        done |= found.anchors
        refused += found.refused
        cursor = found.cursor
        if found.waits or cursor is None:
            break
        _progress(f"{len(done):,} replayed so far")
    _show_replayed(done, refused, as_json)
    if found.waits:
        raise AckerError(f"{len(done):,} replayed, and no more now: {found.waits}; do the same again later")
    return Status.PARTLY if refused else Status.DONE


def _replay_named(ledger: Ledger, ids: list[str], as_json: bool) -> Status:
    """Replays the dead letters that are named; one that cannot be keeps none of the others from it."""
    letters, done, failed = _module(), dict[str, int](), dict[str, AckerError]()
    for letter in ids:
        try:
            done[letter] = ledger.run(letters.replay(ledger.core, letter))
        except (UnknownDeadLetter, ValidationError, SpoutPendingFull, TrackRejected) as error:
            failed[letter] = error
    if failed and not done:
        raise next(iter(failed.values()))
    _show_replayed(done, [], as_json)
    for why in failed.values():
        sys.stderr.write(f"acker: {one_line(str(why))}\n")
    return Status.PARTLY if failed else Status.DONE


@_filtered
def discard(
    topology: TopologyName,
    asked: Any,
    ids: _Ids = None,
    everything: _All = False,
    yes: Annotated[bool, typer.Option("--yes", help="It is meant: nothing brings them back.")] = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Drop dead letters for good, with their rows.

    Exit status 5 where some of those named are not there, 4 where none is.
    """
    letters = _module()
    _check_named(ids, asked, everything)
    ledger = _opened_for(asked, url, timeout, topology)
    if not yes:
        count = len(set(ids)) if ids else sum(one.count for one in _groups(ledger, asked, ("status",)))
        raise ValidationError(
            f"{count:,} dead letters would be gone for good, with their rows: if that is meant, add --yes"
        )
    done, unknown, cursor = 0, [], None
    if ids:
        names = list(dict.fromkeys(ids))
        for first in range(0, len(names), letters.PAGE):
            part = names[first : first + letters.PAGE]
            unknown += ledger.run(letters.discard(ledger.core, part))
        done = len(names) - len(unknown)
    if unknown and not done:
        raise UnknownDeadLetter(f"topology {topology!r} has no dead letter {unknown[0]!r}")
    while not ids:
        found = ledger.run(letters.discard_some(ledger.core, asked, cursor=cursor))
        done, cursor = done + found.count, found.cursor
        if cursor is None:
            break
        _progress(f"{done:,} discarded so far")
    if as_json:
        show_json({"discarded": done, "unknown": unknown})
    else:
        show(f"{done:,} discarded" + (f"; no such dead letters: {', '.join(unknown)}" if unknown else ""))
    return Status.PARTLY if unknown else Status.DONE


def _opened_for(asked: "Filter", url: str, timeout: float, topology: str) -> Ledger:
    """The ledger of a topology that has the spout of a filter, if it names one."""
    ledger = options.ledger(url, timeout, topology)
    if asked.spout is not None:
        ledger.run(ledger.core.refresh_spouts())
        if asked.spout not in ledger.core.spouts:
            raise UnknownSpout(f"topology {topology!r} has no spout {asked.spout!r}")
    return ledger


def _check_named(ids: list[str] | None, asked: "Filter", everything: bool) -> None:
    if bool(ids) == (asked.narrows or everything):
        raise ValidationError("expected ids of dead letters, or filters as --cause, or --all for all of them")


def _groups(ledger: Ledger, asked: "Filter", by: tuple[str, ...]) -> "tuple[Group, ...]":
    letters = _module()
    pages = [ledger.run(letters.groups(ledger.core, asked, by=by))]
    while pages[-1].cursor is not None:
        pages.append(ledger.run(letters.groups(ledger.core, asked, by=by, cursor=pages[-1].cursor)))
    found: tuple[Group, ...] = letters.add_up(pages)
    return found


def _show_groups(ledger: Ledger, asked: "Filter", as_json: bool) -> None:
    found = _groups(ledger, asked, _module().BY)
    if as_json:
        show_json([_json().group(one) for one in found])
        return
    made = table("count", "status", "step", "oldest", "newest", "cause", right=("count",))
    for one in found:
        times = (instant(one.oldest), instant(one.newest))
        row(made, f"{one.count:,}", one.status, one.step or "-", *times, one.cause or "(no reason)")
    show(made if found else "no dead letters")


def _export(ledger: Ledger, asked: "Filter", output: str) -> None:
    letters, count, cursor = _module(), 0, None
    with _opened(output) as file:
        while True:
            page = ledger.run(letters.page(ledger.core, asked, limit=letters.PAGE, cursor=cursor))
            file.writelines(_json().line(one) for one in page.letters)
            count += len(page.letters)
            if (cursor := page.cursor) is None:
                break
            _progress(f"{count:,} written so far")
    sys.stderr.write(f"{count:,} dead letters written\n")


@contextmanager
def _opened(output: str) -> Iterator[IO[str]]:
    if output == "-":
        yield sys.stdout
        return
    try:
        file = Path(output).open("w", encoding="utf-8")  # noqa: SIM115 - what the block raises is not about it
    except OSError as error:
        raise ValidationError(f"--output: {output!r} cannot be written: {error.strerror}") from error
    with file:
        yield file


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def _show_replayed(done: dict[str, int], refused: list[Any], as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "replayed": [{"id": letter, "anchor": str(anchor)} for letter, anchor in done.items()],
                "refused": [{"id": one.id, "why": one.why} for one in refused],
            }
        )
        return
    show(f"{len(done):,} replayed" + (f", {len(refused):,} cannot be: {refused[0].why}" if refused else ""))


def _text(one: "DeadLetter") -> str:
    return json.dumps(_json().plain(one.row), ensure_ascii=False)


def _ended(one: "Attempt") -> str:
    by = step_batch(one.step, one.batch)
    return " ".join(filter(None, (instant(one.at), one.status, by and f"by {by}:", one.reason)))


def _json() -> Any:
    from acker.streams.spouts import letter_json

    return letter_json


def _module() -> Any:
    with needing_pyarrow("to read dead letters"):
        from acker.streams.spouts import dead_letters as letters
    return letters
