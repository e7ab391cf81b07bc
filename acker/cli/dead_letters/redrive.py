"""`acker replay` and `acker discard`: dead letters get another try, or are dropped."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.dead_letters.filter_options import OfFilter, check_spout, letters_module
from acker.cli.shared.noting import new_run, noting
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import end_progress, one_line, progress, show, show_json
from acker.cli.shared.statuses import Status
from acker.cli.shared.stopping import Stop, between_pages
from acker.errors import (
    AckerError,
    SpoutPendingFull,
    TrackRejected,
    UnknownDeadLetter,
    ValidationError,
)
from acker.inspect.operate.activity import NAMED, Action
from acker.ledger.client import Ledger

if TYPE_CHECKING:
    from acker.streams.dead_letters.dead_letters import Filter, Refusal
    from acker.streams.dead_letters.rounds import Remaining, Rounds

_Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="All of them.")]
_REFUSED = 1_000
"""Most refusals that are listed in JSON."""


def replay(
    ledger: OfTopology,
    ids: _Ids = None,
    everything: _All = False,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for room, each time that there is none.")
    ] = 0.0,
    asked: OfFilter = None,
    as_json: Json = False,
) -> Status:
    """Give dead letters a new tree, as their first attempt, and publish their rows again.

    Takes all rows that failed before it began, also rows that wait for room for more dead letters. The first
    Ctrl-C ends it after the current page. Exit status 5 if some could not be replayed, 4 if none of the
    named letters exists.
    """
    _check_named(ids, asked, everything)
    check_spout(ledger, asked)
    if ids:
        return _replay_named(ledger, list(dict.fromkeys(ids)), as_json)
    with between_pages() as stop:
        rounds = _rounds(ledger, asked, letters_module().replay_some, wait)
        listing = _Listing(as_json)
        error = _run(_noted(ledger, "replay", asked, rounds), stop, listing, "replayed")
        remaining = _remaining(rounds, error)
    listing.end(remaining)
    return _ended(listing.count, "replayed", listing.refused, remaining, stop, error, as_json)


def discard(
    ledger: OfTopology,
    ids: _Ids = None,
    everything: _All = False,
    yes: Annotated[bool, typer.Option("--yes", help="It is meant: nothing brings them back.")] = False,
    asked: OfFilter = None,
    as_json: Json = False,
) -> Status:
    """Drop dead letters for good, with their rows.

    Takes all rows that failed before it began, also rows that wait for room for more dead letters. The first
    Ctrl-C ends it after the current page. Exit status 5 if some of the named letters do not exist, 4 if
    none does.
    """
    letters = letters_module()
    _check_named(ids, asked, everything)
    check_spout(ledger, asked)
    rounds = None if ids else _rounds(ledger, asked, letters.discard_some)
    if not yes:
        count = len(set(ids or ())) if rounds is None else rounds.remaining().count
        raise ValidationError(
            f"{count:,} dead letters would be gone for good, with their rows: if that is meant, add --yes"
        )
    if rounds is None:
        return _discard_named(ledger, list(dict.fromkeys(ids or ())), as_json)
    with between_pages() as stop:
        counted = _Counted()
        error = _run(_noted(ledger, "discard", asked, rounds), stop, counted, "discarded")
        remaining = _remaining(rounds, error)
    if as_json:
        show_json(
            {"discarded": counted.count, "unknown": [], "remaining": remaining.count, "why": remaining.why}
        )
    return _ended(counted.count, "discarded", [], remaining, stop, error, as_json)


class _Counted:
    """The progress so far."""

    count = 0

    def add(self, page: Any) -> None:
        """Counts a page."""
        self.count += page.count


class _Listing(_Counted):
    """Counts what was replayed, and lists it as JSON while it goes on: there may be millions."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.refused: list[Refusal] = []

    def add(self, page: Any) -> None:
        """Counts a page, and lists it."""
        for letter, anchor in page.anchors.items() if self._as_json else ():
            sys.stdout.write(", " if self.count else '{"replayed": [')
            sys.stdout.write(json.dumps({"id": letter, "anchor": str(anchor)}))
            self.count += 1
        self.count += 0 if self._as_json else page.count
        self.refused += page.refused

    def end(self, remaining: "Remaining") -> None:
        """Ends the list, with what was not replayed."""
        if self._as_json:
            refused = [{"id": one.id, "why": one.why} for one in self.refused[:_REFUSED]]
            rest = {"refused": refused, "remaining": remaining.count, "why": remaining.why}
            sys.stdout.write(("" if self.count else '{"replayed": [') + "], " + json.dumps(rest)[1:] + "\n")


def _rounds(ledger: Ledger, asked: "Filter", step: Any, wait: float = 0.0) -> "Rounds":
    from acker.streams.dead_letters.rounds import Rounds

    return Rounds(ledger, asked, step, wait)


def _noted(ledger: Ledger, action: Action, asked: "Filter", rounds: "Rounds") -> Iterator[Any]:
    """The pages of rounds, each of them noted in the activity of the topology, all as one entry."""
    given = {name: value for name, value in asdict(asked).items() if value not in (None, "")}
    target, run = given or {"dead letters": "all"}, new_run()
    pages = iter(rounds)
    while True:
        with noting(ledger, action, target, run=run) as noted:
            try:
                page = next(pages)
            except StopIteration:
                return
            noted.count = page.count
        yield page


def _run(rounds: Iterable[Any], stop: Stop, counted: _Counted, done: str) -> AckerError | None:
    """Does page after page, until it is stopped; returns the error that ended it."""
    try:
        for page in rounds:
            counted.add(page)
            progress(f"{counted.count:,} {done} so far")
            if stop.is_set():
                break
    except AckerError as error:
        if not counted.count:
            raise
        return error
    finally:
        end_progress()
    return None


def _remaining(rounds: "Rounds", error: AckerError | None) -> "Remaining":
    """Returns the text for the remaining letters; after an error it is unknown, and the error's instead."""
    from acker.streams.dead_letters.rounds import Remaining

    return rounds.remaining() if error is None else Remaining(0, True, str(error))


def _ended(
    count: int,
    done: str,
    refused: "list[Refusal]",
    remaining: "Remaining",
    stop: Stop,
    error: AckerError | None,
    as_json: bool,
) -> Status:
    """Says what was done, and what is left and why; returns the status."""
    said = f"{count:,} {done}"
    if refused:
        said += f"; {len(refused):,} cannot be: {refused[0].why}"
    if error is not None:
        said += f"; the others wait: {error}"
    elif remaining.count:
        why = remaining.why or ("it was interrupted" if stop.is_set() else "they ended meanwhile")
        said += f"; {remaining.count:,}{' or more' if remaining.more else ''} remain: {why}"
    if not as_json:
        show(one_line(said))
    elif refused or remaining.count or error is not None:
        sys.stderr.write(f"acker: {one_line(said)}\n")
    if stop.is_set():
        return Status.INTERRUPTED
    if not refused and not remaining.count and error is None:
        return Status.DONE
    return Status.PARTLY if count else Status.TROUBLE


def _replay_named(ledger: Ledger, ids: list[str], as_json: bool) -> Status:
    """Replays the dead letters that are named; one that cannot be keeps none of the others from it."""
    letters, done, failed = letters_module(), dict[str, int](), dict[str, AckerError]()
    with noting(ledger, "replay", _listed(ids)) as noted:
        for letter in ids:
            try:
                done[letter] = ledger.run(letters.replay(ledger.core, letter))
                noted.count += 1
            except (UnknownDeadLetter, ValidationError, SpoutPendingFull, TrackRejected) as error:
                failed[letter] = error
        noted.result = f"{len(failed):,} were not replayed" if failed else ""
    if failed and not done:
        raise next(iter(failed.values()))
    if as_json:
        replayed = [{"id": letter, "anchor": str(anchor)} for letter, anchor in done.items()]
        refused = [{"id": letter, "why": str(why)} for letter, why in failed.items()]
        show_json({"replayed": replayed, "refused": refused})
    else:
        show(f"{len(done):,} replayed")
    for why in failed.values():
        sys.stderr.write(f"acker: {one_line(str(why))}\n")
    return Status.PARTLY if failed else Status.DONE


def _discard_named(ledger: Ledger, ids: list[str], as_json: bool) -> Status:
    """Discards the dead letters that are named."""
    letters = letters_module()
    unknown: list[str] = []
    with noting(ledger, "discard", _listed(ids)) as noted:
        for first in range(0, len(ids), letters.PAGE):
            named = ids[first : first + letters.PAGE]
            missing = ledger.run(letters.discard(ledger.core, named))
            noted.count += len(named) - len(missing)
            unknown += missing
        noted.result = f"{len(unknown):,} were no dead letters" if unknown else ""
    done = len(ids) - len(unknown)
    if not done:
        raise UnknownDeadLetter(f"topology {ledger.config.name!r} has no dead letter {unknown[0]!r}")
    if as_json:
        show_json({"discarded": done, "unknown": unknown})
    else:
        show(f"{done:,} discarded" + (f"; no such dead letters: {', '.join(unknown)}" if unknown else ""))
    return Status.PARTLY if unknown else Status.DONE


def _listed(ids: list[str]) -> dict[str, object]:
    """The dead letters that a command names, for its activity."""
    return {"dead letters": len(ids), "ids": ids[:NAMED]}


def _check_named(ids: list[str] | None, asked: "Filter", everything: bool) -> None:
    if bool(ids) == (asked.narrows or everything):
        raise ValidationError("expected ids of dead letters, or filters as --cause, or --all for all of them")
