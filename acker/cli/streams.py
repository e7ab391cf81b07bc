"""`acker streams`, `readers`, `give-back`, `unsubscribe`: who reads what, how far it is, an end to it."""

from typing import Annotated

import typer

from acker.cli.shared.options import Json, OfTopology, StreamName
from acker.cli.shared.output import all_pages, duration, page_status, printable, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import UnknownReader, UnknownStream, needing_pyarrow
from acker.streams.log.stream_totals import stream_totals


def streams(ledger: OfTopology, as_json: Json = False) -> None:
    """A topology's streams: what each holds, and how far its subscriptions are."""
    found = ledger.run(stream_totals(ledger.core))
    if as_json:
        show_json(found)
        return
    made = table(
        "stream", ">segments", ">MiB", ">dropped", "subscription", ">rows", ">behind", ">rows dropped",
        ">late", ">stale", ">oldest unread",
    )  # fmt: skip
    for one in found:
        facts = (one.name, f"{one.segments:,}", f"{one.bytes / 2**20:,.1f}", f"{one.dropped:,}")
        if not one.subscriptions:
            row(made, *facts, "-", "-", "-", "-", "-", "-", "-")
        for place, own in enumerate(one.subscriptions):
            row(
                made,
                *(facts if place == 0 else ("", "", "", "")),
                own.name or "(waits for one)",
                f"{own.rows_published:,}",
                f"{own.rows_behind:,}",
                f"{own.rows_dropped:,}",
                f"{own.acks_late:,}",
                f"{own.rows_stale:,}",
                duration(own.unread_age),
            )
    show(made if found else "no streams")


def unsubscribe(
    ledger: OfTopology,
    stream: StreamName,
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", show_default=False)],
    ack: Annotated[
        bool, typer.Option("--ack", help="Let the trees go on without it, in place of failing them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Drop a subscription with what it has not acked: its trees fail, to be replayed for the others."""
    with needing_pyarrow("to drop subscriptions"):
        from acker.streams import Stream

    done = Stream(ledger, stream).unsubscribe(subscription, ack=ack)
    if as_json:
        show_json({"segments": done})
    else:
        show(f"{done} segment{'' if done == 1 else 's'} {'acked' if ack else 'failed'}")


def readers(
    ledger: OfTopology,
    stream: StreamName,
    as_json: Json = False,
) -> None:
    """The readers of a stream's subscriptions: when each has last asked for segments.

    A query asks when it plans a batch, and every ten seconds at least while there is none.
    """
    with needing_pyarrow("to look at readers"):
        from acker.streams import Stream

    if not any(one.name == stream for one in ledger.run(stream_totals(ledger.core))):
        raise UnknownStream(f"topology {ledger.config.name!r} has no stream {stream!r}")
    own = Stream(ledger, stream)
    names = [one.name for one in own.totals().subscriptions if one.name is not None]
    found = [(name, reader, silent) for name in names for reader, silent in own.readers(name).items()]
    if as_json:
        show_json([{"subscription": name, "reader": reader, "silent": age} for name, reader, age in found])
        return
    made = table("subscription", "reader", ">asked for segments")
    for name, reader, silent in found:
        row(made, name, reader, f"{duration(silent)} ago")
    show(made if found else "no readers")


def give_back(
    ledger: OfTopology,
    stream: StreamName,
    reader: Annotated[str, typer.Argument(metavar="READER", show_default=False)],
    subscription: Annotated[str, typer.Option(help="Whose reader it is.")] = "default",
    as_json: Json = False,
) -> None:
    """Take from a reader what it has not acked, for the others of its subscription.

    For a query that was given up with its checkpoint. A commit of it that is under way is finished first;
    what it goes on with after that is not committed, and ends with ReaderFenced.
    """
    with needing_pyarrow("to take segments back"):
        from acker.streams import Stream

    own = Stream(ledger, stream)
    known = own.readers(subscription)
    done = own.give_back(reader, subscription)
    if not done and reader not in known:
        raise UnknownReader(f"subscription {subscription!r} of stream {stream!r} has no reader {reader!r}")
    if as_json:
        show_json({"segments": done})
    else:
        show(f"{done} segment{'' if done == 1 else 's'} given back")


def stuck(ledger: OfTopology, as_json: Json = False) -> Status:
    """What each subscription has not acked: who has taken it since when, and how much nobody has."""
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate import stuck as looking

    pages = all_pages(lambda cursor: ledger.run(looking.stuck(ledger.core, cursor=cursor)))
    found = [one for page in pages for one in page.stuck]
    if as_json:
        show_json({"stuck": found, "cursor": pages[-1].cursor})
        return page_status(pages)
    made = table("stream", "subscription", "taken by", ">segments", ">rows", ">oldest")
    for one in found:
        for share in one.shares:
            row(
                made,
                one.stream,
                one.subscription or "(waits for one)",
                printable(share.holder.text()) if share.holder else "nobody",
                f"{share.segments:,}{' or more' if one.partly else ''}",
                f"{share.rows:,}",
                duration(share.oldest),
            )
    show(made if found else "nothing is stuck")
    return page_status(pages)


def drops(ledger: OfTopology, as_json: Json = False) -> None:
    """What streams have dropped, by their limits or with a subscription: their trees expire, or failed."""
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate import drops as looking

    found = ledger.run(looking.drops(ledger.core))
    if as_json:
        show_json({"drops": found})
    else:
        show(*(printable(one.text()) for one in found) if found else ["nothing was dropped"])
