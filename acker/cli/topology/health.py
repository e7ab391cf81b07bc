"""`acker health` and `acker complete`: what needs a human, and whether all until a time is done."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker.cli.shared.noting import author, noting
from acker.cli.shared.options import Json, OfTopology
from acker.cli.shared.output import duration, facts, printable, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import ValidationError, needing_pyarrow
from acker.inspect.slow_scripts import slow_scripts
from acker.inspect.topology import health as rules
from acker.inspect.topology.health import Health
from acker.inspect.topology.troubles import Level, Muted, Trouble
from acker.ledger.fields import instant

if TYPE_CHECKING:
    from acker.inspect.locate.completion import Completion

_POLL = 1.0
"""Seconds between two looks of `acker complete --wait`."""


def health(
    ledger: OfTopology,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="THRESHOLD=NUMBER", help="Sets a threshold; 0 or off switches its rule off."
        ),
    ] = None,
    mute: Annotated[
        str, typer.Option("--mute", metavar="TROUBLE", help="Mutes a trouble for a while; it shows as muted.")
    ] = "",
    hours: Annotated[float, typer.Option("--hours", help="With --mute: how long, at most 720.")] = 8.0,
    reason: Annotated[str, typer.Option("--reason", help="With --mute: why, for others to read.")] = "",
    unmute: Annotated[
        str, typer.Option("--unmute", metavar="TROUBLE", help="Ends the mute of a trouble.")
    ] = "",
    scripts: Annotated[
        bool, typer.Option("--scripts", help="Names clients whose scripts held the store for long lately.")
    ] = False,
    as_json: Json = False,
) -> Status:
    """Troubles that need a human: in words, since when, and what to do. Exit status 1 where there is any."""
    if mute:
        by = f"{author()} (not proved)"
        with noting(ledger, "mute", {"trouble": mute, "hours": hours}, reason=reason):
            ledger.run(rules.mute(ledger.core, mute, by=by, reason=reason, seconds=hours * 3600))
    if unmute:
        with noting(ledger, "unmute", {"trouble": unmute}):
            ledger.run(rules.unmute(ledger.core, unmute))
    wanted = dict(_change(text) for text in changes or [])
    if wanted:
        with noting(ledger, "set-thresholds", wanted) as noted:
            ledger.run(rules.set_thresholds(ledger.core, wanted))
            noted.count = len(wanted)
    judged = ledger.run(rules.health(ledger.core))
    status = Status.TROUBLE if judged.troubles else Status.DONE
    slow = ledger.run(slow_scripts(ledger.core)) if scripts else ()
    if as_json:
        told = {name: getattr(judged, name) for name in _SHOWN}
        show_json(told | ({"slow_scripts": slow} if scripts else {}))
        return status
    show(*shown(judged), "")
    if scripts:
        lines = [printable(f"{instant(script.at)}  {script.text()}") for script in slow]
        show(
            *(
                lines
                or ["no script held the store for a second in the last hour, or SLOWLOG GET is not allowed"]
            ),
            "",
        )
    limits = [(name, f"{value:g}" if value else "off") for name, value in asdict(judged.thresholds).items()]
    show(facts(limits))
    return status


def complete(
    ledger: OfTopology,
    before: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="ISO time with a zone, as 2026-11-26T00:00:00Z, or an age: 90s, 15m, 2h, 1d.",
        ),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Look each second until it is complete.")] = False,
    most: Annotated[float, typer.Option(help="Most seconds to wait.", min=0.0, max=2_592_000.0)] = 86_400.0,
    as_json: Json = False,
) -> Status:
    """Tell whether all records that were first tracked before a time are acked or dead letters.

    A replay counts as its record. Exit status 1 while it is not complete, or where that cannot be known.
    """
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate.completion import completion
    end = time.monotonic() + most
    answer = ledger.run(completion(ledger.core, before))
    while wait and answer.state == "open" and time.monotonic() < end:
        time.sleep(max(0.0, min(_POLL, end - time.monotonic())))
        answer = ledger.run(completion(ledger.core, answer.before))
    if as_json:
        show_json(answer)
    else:
        _show_completion(answer)
    return Status.DONE if answer.state == "complete" else Status.TROUBLE


def _show_completion(answer: "Completion") -> None:
    show(printable(answer.text))
    if answer.places:
        places = table(">records", "wait for")
        for one in answer.places:
            row(places, f"{one.records:,}", printable(one.step))
        show("", places)


_SHOWN = ("severity", "since", "ticking", "troubles", "muted", "paused", "thresholds")
_WORDS: dict[Level, str] = {
    "critical": "critical",
    "look": "needs a look",
    "muted": "healthy",
    "well": "healthy",
}


def in_short(troubles: Sequence[Trouble], muted: Sequence[Muted] = ()) -> str:
    """Health in a word, or its severity and the names of its troubles, and the muted ones."""
    words = "healthy"
    if troubles:
        words = f"{_WORDS[troubles[0].severity]}: {', '.join(one.code for one in troubles)}"
    return f"{words} (muted: {', '.join(one.trouble.code for one in muted)})" if muted else words


def shown(judged: Health) -> list[Any]:
    """Health for people."""
    parts: list[Any] = ["healthy" if not judged.muted else "healthy, but for what is muted"]
    if judged.troubles:
        findings = table("trouble", "severity", ">for", "what there is", "value, threshold", "what to do")
        for one in judged.troubles:
            lasts = "-" if one.since is None else duration(max(0.0, judged.at - one.since))
            row(findings, one.code, _WORDS[one.severity], lasts, one.text, _compared(one), one.advice)
        parts = [findings]
    if judged.muted:
        mutes = table("muted", "by", "until", "why", "what there is")
        for muted in judged.muted:
            mute = muted.mute
            until = "-" if mute.until is None else instant(mute.until)
            row(
                mutes,
                muted.trouble.code,
                printable(mute.by) or "-",
                until,
                printable(mute.reason),
                printable(muted.trouble.text),
            )
        parts += ["", mutes]
    return parts


def _compared(trouble: Trouble) -> str:
    """The value that a rule has judged, beside its threshold."""
    if trouble.value is None or trouble.limit is None:
        return "-"
    return f"{trouble.value:,.3g}, {trouble.threshold} {trouble.limit:,.3g}"


def _change(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, 0.0 if value == "off" else float(value)
    except ValueError:
        raise ValidationError(
            f"--set: expected THRESHOLD=NUMBER or THRESHOLD=off, got {text!r:.100}"
        ) from None
