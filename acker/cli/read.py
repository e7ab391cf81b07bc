"""`acker topologies`, `stats`, `trees` and `tree`: looking, without changing anything."""

import sys
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from acker.cli import options
from acker.cli.health import in_short, shown
from acker.cli.options import Json, Timeout, TopologyName, Url
from acker.cli.output import duration, facts, printable, row, show, show_json, step_batch, table
from acker.cli.statuses import Status
from acker.errors import UnknownTopology, UnknownTree, ValidationError
from acker.inspect.as_json import topology_forms, tree_forms
from acker.inspect.as_json.values import instant
from acker.inspect.topology import health as rules
from acker.inspect.topology.health import Health
from acker.inspect.topology.totals import Totals, totals
from acker.inspect.topology.unreadable_topology import Damaged, damaged
from acker.inspect.trees import failures, pages
from acker.inspect.trees.failure import Failure
from acker.inspect.trees.pages import TreesPage
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.settings.topologies import names as topology_names
from acker.ledger.steps import step_registry, step_totals
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import StepTotals
from acker.ledger.trees import trees as ledger_trees
from acker.ledger.trees.buckets import BUCKETS, Bucket
from acker.ledger.trees.trees import Tree
from acker.store.client import Store
from acker.streams.log.stream_totals import stream_totals


def topologies(url: Url = "", timeout: Timeout = 10.0, as_json: Json = False) -> Status:
    """All topologies of the store. Exit status 5 where one of them cannot be read."""
    store = options.store(url, timeout)
    found = [one for name in store.run(topology_names()) if (one := _look(store, name)) is not None]
    status = Status.PARTLY if any(isinstance(one, Damaged) for one in found) else Status.DONE
    if as_json:
        show_json(
            topology_forms.listing(
                one if isinstance(one, Damaged) else topology_forms.summary(*one) for one in found
            )
        )
        return status
    made = table(
        "topology", "ackers", "message timeout", "pending", "held", "high-water", "last rotation", "health",
        right=("ackers", "message timeout", "pending", "held", "high-water", "last rotation"),
    )  # fmt: skip
    for one in found:
        if isinstance(one, Damaged):
            row(made, one.topology, *["-"] * 6, in_short((rules.unread(one),)))
            continue
        config, read, judged = one
        row(
            made,
            config.name,
            config.ackers,
            duration(config.message_timeout),
            f"{read.pending:,}",
            f"{read.held:,}",
            f"{read.high_water_use:.1%}",
            duration(read.rotation_age),
            in_short(judged.troubles),
        )
    show(made if found else "no topologies")
    for one in found:
        if isinstance(one, Damaged):
            show(f"topology {one.topology!r} cannot be read: {one.reason}")
    return status


def _look(store: Store, name: str) -> tuple[TopologyConfig, Totals, Health] | Damaged | None:
    """The row of a topology in the list; None where it is gone."""
    try:
        ledger = open_ledger(store, name, create=False)
        read = ledger.run(totals(ledger.core))
        return ledger.config, read, ledger.run(rules.health(ledger.core, read))
    except UnknownTopology:
        return None
    except Exception as error:  # noqa: BLE001 - one topology must not keep the others from being seen
        return damaged(name, error)


def stats(topology: TopologyName, url: Url = "", timeout: Timeout = 10.0, as_json: Json = False) -> None:
    """A topology's configuration, counters, latencies, and how full and old its shards are."""
    ledger = options.ledger(url, timeout, topology)
    read = ledger.run(totals(ledger.core))
    latency = ledger.latency(*topology_forms.PERCENTILES)
    at_work = ledger.run(step_registry.steps(ledger.core))
    done = ledger.run(step_totals.totals(ledger.core))
    judged = ledger.run(rules.health(ledger.core, read))
    if as_json:
        streams = ledger.run(stream_totals(ledger.core))
        spouts = ledger.core.spouts
        show_json(
            topology_forms.state(
                ledger.config,
                read,
                judged,
                latency=latency,
                spouts=spouts,
                streams=streams,
                steps=at_work,
                step_totals=done,
            )
        )
    else:
        show(*shown(judged), "")
        _show_stats(ledger, read, latency, judged)
        if at_work:
            show("", _steps_table(at_work))
        if done:
            show("", _done_table(done))


def trees(
    topology: TopologyName,
    bucket: Annotated[
        str | None, typer.Option(help=f"Only those in one bucket: {', '.join(BUCKETS)}.")
    ] = None,
    spout: Annotated[str | None, typer.Option(help="Only those of one spout.")] = None,
    shard: Annotated[int | None, typer.Option(help="Only those of one shard.")] = None,
    older_than: Annotated[float, typer.Option(help="Only those tracked so many seconds ago or more.")] = 0.0,
    message_id: Annotated[
        str | None,
        typer.Option(help="Only those with a message id, finished ones too; goes with no other filter."),
    ] = None,
    message_id_base64: Annotated[
        str | None, typer.Option(help="The same for a message id that is no text, as base64.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to show at most: 1 to 1,000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """Trees in flight, the next ones to expire first; a page at a time."""
    if message_id is not None and message_id_base64 is not None:
        raise ValidationError("--message-id and --message-id-base64 name the same thing")
    given = message_id if message_id_base64 is None else message_id_base64
    wanted = None if given is None else options.message_id(given, message_id_base64 is not None)
    if wanted is not None and (bucket, spout, shard, older_than) != (None, None, None, 0.0):
        raise ValidationError("--message-id goes with no other filter")
    ledger = options.ledger(url, timeout, topology)

    def read(limit: int, cursor: str | None) -> TreesPage:
        if wanted is not None:
            return ledger.run(pages.find(ledger.core, wanted, limit=limit, cursor=cursor))
        return ledger.run(
            pages.trees(
                ledger.core,
                bucket=cast("Bucket | None", bucket),
                spout=spout,
                shard=shard,
                older_than=older_than,
                limit=limit,
                cursor=cursor,
            )
        )

    page = _full_page(read, limit, cursor)
    if as_json:
        show_json({"trees": [tree_forms.tree(tree) for tree in page.trees], "cursor": page.cursor})
        return
    show(_trees_table(page.trees) if page.trees else "no trees")
    if page.cursor is not None:
        sys.stderr.write(f"more: --cursor {page.cursor}\n")


def tree(
    topology: TopologyName,
    anchor: Annotated[str, typer.Argument(metavar="ANCHOR", show_default=False)],
    url: Url = "",
    timeout: Timeout = 10.0,
    as_json: Json = False,
) -> None:
    """One tree, by its anchor."""
    number = options.anchor(anchor)
    ledger = options.ledger(url, timeout, topology)
    found = ledger.run(ledger_trees.tree(ledger.core, number))
    if found is None:
        ended = ledger.run(failures.find(ledger.core, number))
        how = "never tracked, or finished and confirmed"
        if ended is not None:
            how = f"it {_ended(ended)}"
        raise UnknownTree(f"topology {topology!r} knows no tree {number}: {how}")
    if as_json:
        show_json(tree_forms.tree(found))
        return
    rows = _tree_facts(found)
    outcome = ledger.run(failures.how_ended(ledger.core, found))
    if outcome is not None:
        rows.append(("outcome", printable(outcome if isinstance(outcome, str) else _ended(outcome))))
    show(facts(rows))


def _ended(tree: Failure) -> str:
    """How a tree failed or expired, for people."""
    by = step_batch(tree.cause.step, tree.cause.batch)
    why = f", by {by}" if by else ""
    why += f": {tree.cause.reason}" if tree.cause.reason else ""
    return f"{tree.status} at {instant(tree.at)}, {duration(tree.age)} after its track{why}"


def _full_page(read: Callable[[int, str | None], TreesPage], limit: int, cursor: str | None) -> TreesPage:
    """Goes on through pages that are not full, each of them bounded, until one is or there are no more."""
    page = read(limit, cursor)
    found = list(page.trees)
    while page.cursor is not None and len(found) < limit:
        page = read(limit - len(found), page.cursor)
        found += page.trees
    return TreesPage(tuple(found), page.cursor)


def _show_stats(ledger: Ledger, read: Totals, latency: list[float | None], judged: Health) -> None:
    config = ledger.config
    percentiles = ", ".join(
        f"p{fraction * 100:g} {duration(seconds)}"
        for fraction, seconds in zip(topology_forms.PERCENTILES, latency, strict=True)
    )
    show(
        facts(
            [
                ("topology", config.name),
                ("ackers", config.ackers if config.ackers else "0: tracking is off"),
                (
                    "message timeout",
                    f"{duration(config.message_timeout)}, a tick every {config.tick_ms / 1000:g} s",
                ),
                ("spouts", ", ".join(sorted(ledger.core.spouts)) or "-"),
                ("pending", f"{read.pending:,} trees, the oldest {duration(read.oldest_age)}"),
                (
                    "held",
                    f"{read.held:,} of {config.high_water_mark:,}; fullest shard {read.high_water_use:.1%}",
                ),
                ("dead letters", _dead_letters(judged)),
                ("rows behind", f"{judged.rows_behind:,}, by subscription in: acker streams {config.name}"),
                ("waiting", f"{read.waiting:,} (slabs without a track)"),
                ("last rotation", f"{duration(read.rotation_age)} ago, {read.backlog} not drained"),
                ("complete latency", percentiles),
            ]
        ),
        "",
    )
    counters = table("counter", "count", right=("count",))
    for name, count in {**read.counters, "unreadable": read.unreadable}.items():
        row(counters, name, f"{count:,}")
    shards = table(
        "shard", *BUCKETS, "waiting", "held", "rotations", "last rotation", "oldest tree",
        right=("shard", *BUCKETS, "waiting", "held", "rotations", "last rotation", "oldest tree"),
    )  # fmt: skip
    for shard in read.shards:
        row(
            shards,
            shard.shard,
            *(f"{bucket.trees:,}" for bucket in shard.buckets),
            f"{shard.waiting:,}",
            f"{shard.held:,}",
            f"{shard.rotations:,}",
            duration(shard.rotation_age),
            duration(shard.oldest_age),
        )
    show(counters, "", shards)


def _dead_letters(judged: Health) -> str:
    """How many rows were given up, by spout, the most first."""
    found = sorted(judged.dead_letters.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in found)
    return f"{sum(judged.dead_letters.values()):,} ({shown})" if found else "0"


def _steps_table(found: list[Step]) -> Any:
    made = table(
        "step",
        "kind",
        "application",
        "query",
        "batch",
        "took",
        "late",
        "reads",
        "emits",
        "last seen",
        right=("batch", "took", "late", "last seen"),
    )
    for step in found:
        row(
            made,
            step.name,
            step.kind,
            printable(f"{step.application} ({step.application_id})") if step.application_id else "-",
            printable(step.query or step.query_id) or "-",
            "-" if step.batch < 0 else f"{step.batch:,}",
            duration(step.seconds) if step.seconds else "-",
            f"{step.late:,}",
            ", ".join(step.reads) or "-",
            ", ".join(step.emits) or "-",
            "-" if step.age is None else f"{duration(step.age)} ago",
        )
    return made


def _done_table(found: list[StepTotals]) -> Any:
    made = table(
        "step", "acked", "failed", "age p50", "age p99", "last ack", right=("acked", "failed", "last ack")
    )
    for one in found:
        ages = [one.age(0.5), one.age(0.99)]
        row(
            made,
            one.step,
            f"{one.tuples:,}",
            f"{one.failed:,}",
            *("-" if age is None else duration(age) for age in ages),
            "-" if one.last_seen is None else instant(one.last_seen),
        )
    return made


def _time_left(tree: Tree) -> str:
    if tree.time_left_earliest is None:
        return "-"
    if tree.time_left_latest is None:
        return f"{duration(tree.time_left_earliest)} or more: no ticks"
    return f"{duration(tree.time_left_earliest)} to {duration(tree.time_left_latest)}"


def _state(tree: Tree) -> str:
    return tree.state if tree.failure is None else f"{tree.state}, failed"


def _trees_table(trees: tuple[Tree, ...]) -> Any:
    made = table(
        "anchor", "state", "spout", "message id", "age", "time left", "shard", "bucket",
        right=("anchor", "age", "time left", "shard"),
    )  # fmt: skip
    for tree in trees:
        row(
            made,
            tree.anchor,
            _state(tree),
            tree.spout or "-",
            "-" if tree.message_id is None else printable(tree.message_id),
            duration(tree.age),
            _time_left(tree),
            tree.shard,
            tree.bucket or "-",
        )
    return made


def _tree_facts(tree: Tree) -> list[tuple[str, object]]:
    return [
        ("anchor", tree.anchor),
        ("state", _state(tree)),
        *([("reason", tree.failure)] if tree.failure is not None else []),
        ("ack value", tree.value),
        ("spout", tree.spout or "-"),
        ("message id", "-" if tree.message_id is None else printable(tree.message_id)),
        ("tracked at", f"{instant(tree.tracked_at)}, {duration(tree.age)} ago"),
        ("time left", _time_left(tree)),
        ("shard", tree.shard),
        ("bucket", tree.bucket or "-"),
        ("slab", f"{tree.slab}, index {tree.index}"),
    ]
