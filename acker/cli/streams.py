"""`acker streams`, `readers`, `subscribe`, ..., `reconcile`: readers of streams and their progress.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from dataclasses import asdict
from typing import Annotated

import typer

from acker.cli.shared.noting import noting
from acker.cli.shared.options import Json, OfTopology, StreamName, Timeout, TopologyName, Url, ledger
from acker.cli.shared.output import all_pages, duration, page_status, printable, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.errors import UnknownReader, UnknownStream, ValidationError, needing_pyarrow
from acker.ledger.fields import instant
from acker.streams.log.stream_totals import UNTRACKED, Kind, StreamTotals, stream_totals


def streams(ledger: OfTopology, as_json: Json = False) -> None:
    """A topology's streams: what each holds, and how far its subscriptions are."""
    totals = ledger.run(stream_totals(ledger.core))
    if as_json:
        show_json(totals)
        return
    streams_table = table(
        "stream", "kind", ">segments", ">MiB", ">dropped", "subscription", ">rows", ">behind",
        ">rows dropped", ">late", ">stale", ">oldest unread",
    )  # fmt: skip
    for stream in totals:
        facts = (
            stream.name,
            stream.kind,
            f"{stream.segments:,}",
            f"{stream.bytes / 2**20:,.1f}",
            f"{stream.dropped:,}",
        )
        if not stream.subscriptions:
            row(streams_table, *facts, "-", "-", "-", "-", "-", "-", "-")
        for place, subscription in enumerate(stream.subscriptions):
            row(
                streams_table,
                *(facts if place == 0 else [""] * len(facts)),
                subscription.name or "(waits for one)",
                f"{subscription.rows_published:,}",
                f"{subscription.rows_behind:,}",
                f"{subscription.rows_dropped:,}",
                f"{subscription.acks_late:,}",
                f"{subscription.rows_stale:,}",
                duration(subscription.unread_age),
            )
    show(streams_table if totals else "no streams")
    external = [stream for stream in totals if stream.kind == "external"]
    _show_received(external)


def _show_received(streams: list[StreamTotals]) -> None:
    """Shows the rows that the subscriptions of external streams were given."""
    if not streams:
        return
    grid = table("external", ">unheard", "subscription", ">received", *(f">{reason}" for reason in UNTRACKED))
    for stream in streams:
        facts = stream.name, f"{stream.rows_unheard:,}"
        if not stream.subscriptions:
            row(grid, *facts, "-", "-", *("-" for _ in UNTRACKED))
        for place, subscription in enumerate(stream.subscriptions):
            counts = (f"{getattr(subscription, f'rows_{reason}'):,}" for reason in UNTRACKED)
            row(
                grid,
                *(facts if place == 0 else [""] * len(facts)),
                subscription.name or "-",
                f"{subscription.rows_received:,}",
                *counts,
            )
    show(grid)


def subscribe(
    ledger: OfTopology,
    stream: StreamName,
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", show_default=False)],
    external: Annotated[
        bool, typer.Option("--external", help="The stream's rows are outside the store, as in Kafka.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Declare a subscription before its first row: from now on each row waits for it, too.

    A stream without it is made: managed, or external by --external. A subscription that is there stays.
    """
    with needing_pyarrow("to declare subscriptions"):
        from acker.streams.log import subscriptions
        from acker.streams.staging.external import declaring

    kind: Kind = "external" if external else "managed"
    named = {"stream": stream, "subscription": subscription, "kind": kind}
    with noting(ledger, "declare-subscription", named):
        if external:
            ledger.run(declaring.declare(ledger.core, stream))
        ledger.run(subscriptions.subscribe(ledger.core, stream, subscription, kind))
    if as_json:
        show_json({"stream": stream, "subscription": subscription, "kind": kind})
    else:
        show(f"{kind} stream {stream} has subscription {subscription}")


def rename_subscription(
    ledger: OfTopology,
    stream: StreamName,
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", show_default=False)],
    as_json: Json = False,
) -> None:
    """Give a subscription of an external stream another name, with all that it owes: stop its step first."""
    with needing_pyarrow("to rename subscriptions"):
        from acker.streams import Stream

    with noting(ledger, "rename-subscription", {"stream": stream, "subscription": subscription, "new": new}):
        Stream(ledger, stream).rename_subscription(subscription, new)
    if as_json:
        show_json({"stream": stream, "subscription": new})
    else:
        show(f"external stream {stream} has subscription {new} in place of {subscription}")


def reconcile(
    topology: TopologyName,
    stream: StreamName,
    subscription: Annotated[
        str, typer.Option(help="The subscription that the table serves.", show_default=False)
    ],
    parquet: Annotated[str, typer.Option(metavar="PATH", help="A table of parquet files.")] = "",
    delta: Annotated[str, typer.Option(metavar="PATH", help="A Delta table, by its path.")] = "",
    iceberg: Annotated[str, typer.Option(metavar="TABLE", help="An Iceberg table, by its name.")] = "",
    sql: Annotated[str, typer.Option(metavar="QUERY", help="A query of Spark SQL.")] = "",
    column: Annotated[str, typer.Option(help="The column with the stamps.")] = "_acker_stamp",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> Status:
    """Compare an external stream with a table that has its stamps, and ack the rows that are there.

    It can be run again, over the same rows: a row counts once. Exit status 1 where rows are missing.
    """
    tables = {"parquet": parquet, "delta": delta, "iceberg": iceberg, "sql": sql}
    named = [(kind, place) for kind, place in tables.items() if place]
    if len(named) != 1:
        raise ValidationError(
            f"expected one of --parquet, --delta, --iceberg and --sql, got {len(named) or 'none'}"
        )
    settings = [setting.partition("=") for setting in conf or ()]
    if bad := [key + equals for key, equals, _ in settings if not key or not equals]:
        raise ValidationError(f"--conf: expected KEY=VALUE, got {bad[0]!r}")
    ledger(topology, url, timeout)  # before Spark is started
    with needing_pyarrow("to reconcile"):
        from acker.spark.reconciliation import reconcile as compare
        from acker.spark.runtime.tables import opened
    [(kind, place)] = named
    with opened(kind, place, [(key, value) for key, _, value in settings]) as rows:
        answer = compare(
            rows, stream, subscription, url=url, topology=topology, column=column, timeout=timeout
        )
    if as_json:
        show_json({**asdict(answer), "complete": answer.complete})
    else:
        show(printable(answer.text))
    return Status.DONE if answer.complete else Status.TROUBLE


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

    named = {"stream": stream, "subscription": subscription, "ack": ack}
    with noting(ledger, "remove-subscription", named) as noted:
        done = Stream(ledger, stream).unsubscribe(subscription, ack=ack)
        noted.count, noted.result = done, f"{done:,} segments {'acked' if ack else 'failed'}"
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

    if not any(totals.name == stream for totals in ledger.run(stream_totals(ledger.core))):
        raise UnknownStream(f"topology {ledger.config.name!r} has no stream {stream!r}")
    opened = Stream(ledger, stream)
    names = [
        subscription.name for subscription in opened.totals().subscriptions if subscription.name is not None
    ]
    rows = [(name, reader, silent) for name in names for reader, silent in opened.readers(name).items()]
    if as_json:
        show_json([{"subscription": name, "reader": reader, "silent": age} for name, reader, age in rows])
        return
    grid = table("subscription", "reader", ">asked for segments")
    for name, reader, silent in rows:
        row(grid, name, reader, f"{duration(silent)} ago")
    show(grid if rows else "no readers")


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

    opened = Stream(ledger, stream)
    readers = opened.readers(subscription)
    named = {"stream": stream, "subscription": subscription, "reader": reader}
    with noting(ledger, "give-back", named) as noted:
        done = opened.give_back(reader, subscription)
        noted.count, noted.result = done, f"{done:,} segments given back"
    if not done and reader not in readers:
        raise UnknownReader(f"subscription {subscription!r} of stream {stream!r} has no reader {reader!r}")
    if as_json:
        show_json({"segments": done})
    else:
        show(f"{done} segment{'' if done == 1 else 's'} given back")


def stuck(ledger: OfTopology, as_json: Json = False) -> Status:
    """Shows rows that each subscription has not acked: their taker, since when, and how many have none.

    Below them it lists the trees of which bolts in plain Python have tuples, as their processes said last.
    """
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate import stuck as looking

    pages = all_pages(lambda cursor: ledger.run(looking.stuck(ledger.core, cursor=cursor)))
    subscriptions, held = [subscription for page in pages for subscription in page.stuck], pages[0].held
    if as_json:
        show_json({"stuck": subscriptions, "cursor": pages[-1].cursor, "held": held})
        return page_status(pages)
    stuck_table = table("stream", "subscription", "taken by", ">segments", ">rows", ">oldest")
    for subscription in subscriptions:
        for share in subscription.shares:
            row(
                stuck_table,
                subscription.stream,
                subscription.subscription or "(waits for one)",
                printable(share.holder.text()) if share.holder else "nobody",
                f"{share.segments:,}{' or more' if subscription.partly else ''}",
                f"{share.rows:,}",
                duration(share.oldest),
            )
    if subscriptions or not held:
        show(stuck_table if subscriptions else "nothing is stuck")
    if held:
        held_table = table("in plain Python", ">trees", "since", "said last")
        for has in held:
            trees = f"{has.trees:,}{' or more' if has.partly or has.more else ''}"
            row(held_table, printable(has.text()), trees, instant(has.since), instant(has.reported))
        show(*([""] if subscriptions else []), held_table)
    return page_status(pages)


def drops(ledger: OfTopology, as_json: Json = False) -> None:
    """Shows rows that streams dropped, by limits or with a subscription: their trees expire, or failed."""
    with needing_pyarrow("to look into streams"):
        from acker.inspect.locate import drops as looking

    dropped = ledger.run(looking.drops(ledger.core))
    if as_json:
        show_json({"drops": dropped})
    else:
        show(*(printable(one.text()) for one in dropped) if dropped else ["nothing was dropped"])
