"""`acker streams` and `acker unsubscribe`: who reads what, how far behind, and an end to it."""

from dataclasses import asdict
from typing import Annotated

import typer

from acker.cli import options
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import duration, row, show, show_json, table
from acker.stream_totals import StreamTotals, stream_totals


def streams(topology: TopologyName, url: Url = "", timeout: Timeout = 10.0, as_json: Json = False) -> None:
    """A topology's streams: what each holds, and how far its subscriptions are."""
    ledger = options.ledger(url, timeout, topology)
    found = ledger.run(stream_totals(ledger.core))
    if as_json:
        show_json([_fields(one) for one in found])
        return
    made = table(
        "stream", "segments", "MiB", "dropped", "subscription", "rows", "behind", "lost", "oldest unread",
        right=("segments", "MiB", "dropped", "rows", "behind", "lost", "oldest unread"),
    )  # fmt: skip
    for one in found:
        held = (one.name, f"{one.segments:,}", f"{one.bytes / 2**20:,.1f}", f"{one.dropped:,}")
        if not one.subscriptions:
            row(made, *held, "-", "-", "-", "-", "-")
        for place, own in enumerate(one.subscriptions):
            row(
                made,
                *(held if place == 0 else ("", "", "", "")),
                own.name or "(waits for one)",
                f"{own.rows_published:,}",
                f"{own.rows_behind:,}",
                f"{own.rows_dropped:,}",
                duration(own.unread_age),
            )
    show(made if found else "no streams")


def unsubscribe(
    topology: TopologyName,
    stream: Annotated[str, typer.Argument(metavar="STREAM", show_default=False)],
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", show_default=False)],
    ack: Annotated[
        bool, typer.Option("--ack", help="Let the trees go on without it, in place of failing them.")
    ] = False,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Drop a subscription with what it has not acked: its trees fail, to be replayed for the others."""
    from acker.streams import Stream  # needs pyarrow, which the other commands do not

    done = Stream(options.ledger(url, timeout, topology), stream).unsubscribe(subscription, ack=ack)
    if as_json:
        show_json({"segments": done})
    else:
        show(f"{done} segment{'' if done == 1 else 's'} {'acked' if ack else 'failed'}")


def _fields(stream: StreamTotals) -> dict[str, object]:
    own = [{**asdict(one), "rows_behind": one.rows_behind} for one in stream.subscriptions]
    return {**asdict(stream), "subscriptions": own}
