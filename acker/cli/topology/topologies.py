"""`acker topologies`, `stats`, `configure`, `remove`: topologies, their settings, and their end.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, cast, get_args

import typer

from acker.cli.shared.noting import noting
from acker.cli.shared.options import Json, OfStore, OfTopology, TopologyName
from acker.cli.shared.output import duration, facts, printable, row, show, show_json, table
from acker.cli.shared.statuses import Status
from acker.cli.topology.health import in_short, shown
from acker.errors import UnknownTopology, ValidationError, needing_pyarrow
from acker.inspect.operate.configure import configure as configuring
from acker.inspect.operate.removal import remove as removing
from acker.inspect.operate.removal import remove_spout
from acker.inspect.topology import health as rules
from acker.inspect.topology import state, triage
from acker.inspect.topology.health import Health
from acker.inspect.topology.totals import Totals, totals
from acker.inspect.topology.troubles import LEVELS, Level
from acker.inspect.topology.unreadable_topology import Damaged, damaged
from acker.ledger.client import Ledger, open_ledger
from acker.ledger.fields import instant
from acker.ledger.outcomes.latency_histogram import Latency
from acker.ledger.settings.config import SETTINGS, Settings, TopologyConfig, check_name
from acker.ledger.settings.suggestions import meant
from acker.ledger.settings.topologies import names as topology_names
from acker.ledger.steps.step_registry import Step
from acker.ledger.steps.step_totals import StepTotals
from acker.ledger.trees.buckets import BUCKETS
from acker.store.client import Store


def topologies(
    store: OfStore,
    sort: Annotated[
        str, typer.Option("--sort", metavar="ORDER", help="triage (the worst first) or name.")
    ] = "triage",
    state_names: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help=f"Only with this state: {', '.join(LEVELS)}; repeatable."
        ),
    ] = None,
    part: Annotated[str, typer.Option("--name", help="Only those with this text in their names.")] = "",
    as_json: Json = False,
) -> Status:
    """All topologies of the store, those first that need somebody most.

    Exit status 5 where one of them cannot be read.
    """
    _one_of(sort, get_args(triage.Sort), "--sort")
    for name in state_names or []:
        _one_of(name, LEVELS, "--state")
    looked = {
        name: topology_state
        for name in store.run(topology_names())
        if part in name and (topology_state := _look(store, name)) is not None
    }
    every = [
        triage.standing(name, topology_state if isinstance(topology_state, Damaged) else topology_state[2])
        for name, topology_state in looked.items()
    ]
    chosen = triage.choose(every, states=cast(list[Level], state_names or []), sort=cast(triage.Sort, sort))
    states = [looked[standing.topology] for standing in chosen]
    counts = triage.count(every)
    status = (
        Status.PARTLY
        if any(isinstance(topology_state, Damaged) for topology_state in states)
        else Status.DONE
    )
    if as_json:
        show_json(
            state.listing(
                (
                    topology_state if isinstance(topology_state, Damaged) else state.summary(*topology_state)
                    for topology_state in states
                ),
                counts=counts,
            )
        )
        return status
    topologies_table = table(
        "topology", ">ackers", ">message timeout", ">pending", ">outstanding", ">high-water",
        ">last rotation", "health",
    )  # fmt: skip
    for topology_state in states:
        if isinstance(topology_state, Damaged):
            row(
                topologies_table,
                topology_state.topology,
                *["-"] * 6,
                in_short((rules.unread(topology_state),)),
            )
            continue
        config, read, judged = topology_state
        row(
            topologies_table,
            config.name,
            config.ackers,
            duration(config.message_timeout),
            f"{read.pending:,}",
            f"{read.outstanding:,}",
            f"{read.high_water_use:.1%}",
            duration(read.rotation_age),
            in_short(judged.troubles, judged.muted),
        )
    if states:
        show(triage.words(counts), "", topologies_table)
    else:
        show("no topologies")
    for topology_state in states:
        if isinstance(topology_state, Damaged):
            show(f"topology {topology_state.topology!r} cannot be read: {topology_state.reason}")
    return status


def _one_of(value: str, allowed: Sequence[str], option: str) -> None:
    if value not in allowed:
        raise ValidationError(f"{option}: expected one of {', '.join(allowed)}, got {value!r:.100}")


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


def stats(ledger: OfTopology, as_json: Json = False) -> None:
    """A topology's configuration, counters, latencies, and how full and old its shards are."""
    read = ledger.run(totals(ledger.core))
    judged = ledger.run(rules.health(ledger.core, read))
    topology_state = ledger.run(state.state(ledger.core, read, judged))
    if as_json:
        show_json(topology_state)
    else:
        show(*shown(judged), "")
        _show_stats(ledger, read, topology_state.latency, judged)
        if topology_state.steps:
            show("", _steps_table(topology_state.steps))
        if topology_state.step_totals:
            show("", _done_table(topology_state.step_totals))


def _show_stats(ledger: Ledger, read: Totals, latency: Latency, judged: Health) -> None:
    config = ledger.config
    percentiles = ", ".join(f"{name} {duration(seconds)}" for name, seconds in asdict(latency).items())
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
                    "outstanding",
                    f"{read.outstanding:,} of {config.high_water_mark:,}; "
                    f"fullest shard {read.high_water_use:.1%}",
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
    counters = table("counter", ">count")
    for name, count in {**read.counters, "unreadable": read.unreadable}.items():
        row(counters, name, f"{count:,}")
    shards = table(
        ">shard", *(f">{name}" for name in BUCKETS), ">waiting", ">outstanding", ">rotations",
        ">last rotation", ">oldest tree",
    )  # fmt: skip
    for shard in read.shards:
        row(
            shards,
            shard.shard,
            *(f"{bucket.trees:,}" for bucket in shard.buckets),
            f"{shard.waiting:,}",
            f"{shard.outstanding:,}",
            f"{shard.rotations:,}",
            duration(shard.rotation_age),
            duration(shard.oldest_age),
        )
    show(counters, "", shards)


def _dead_letters(judged: Health) -> str:
    """Returns the number of dead letters by spout, the most first."""
    found = sorted(judged.dead_letters.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in found)
    return f"{sum(judged.dead_letters.values()):,} ({shown})" if found else "0"


def _steps_table(steps: list[Step]) -> Any:
    steps_grid = table(
        "step", "kind", "application", "query", ">batch", ">took", ">late", "reads", "emits", ">last seen"
    )
    for step in steps:
        row(
            steps_grid,
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
    return steps_grid


def _done_table(steps: list[StepTotals]) -> Any:
    done_grid = table("step", ">acked", ">failed", "age p50", "age p99", ">last ack")
    for step in steps:
        ages = [step.age.p50, step.age.p99]
        row(
            done_grid,
            step.step,
            f"{step.tuples:,}",
            f"{step.failed:,}",
            *("-" if age is None else duration(age) for age in ages),
            "-" if step.last_seen is None else instant(step.last_seen),
        )
    return done_grid


SETTINGS_HELP = "\n\n".join(
    f"{name}: {one.values}, by default {one.preset}. {one.words}" for name, one in SETTINGS.items()
)


def configure(
    topology: TopologyName,
    store: OfStore,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SETTING=NUMBER", help="Changes a setting; all are changed at once."),
    ] = None,
    rotate_key: Annotated[
        bool, typer.Option("--rotate-key", help="Gives the stamps of its external streams a new key.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --rotate-key: also with open segments of the key before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the settings of a topology, or change some of them for all programs.

    Bounds change at any time, the message timeout while nothing is in flight, the number of ackers never. A
    new key is refused while segments are open whose stamps have the key before the present one.
    """
    check_name(topology, "topology")
    if force and not rotate_key:
        raise ValidationError("--force: goes with --rotate-key")
    if rotate_key:
        if changes:
            raise ValidationError("--rotate-key: goes without --set")
        _rotate_key(topology, store, force, as_json)
        return
    asked = dict(_change(text) for text in changes or [])
    if asked:
        ledger = open_ledger(store, topology, create=False)
        with noting(ledger, "configure", asked):
            config = store.run(configuring(topology, cast(Settings, asked)))
    else:
        config = store.run(configuring(topology, {}))
    if as_json:
        show_json(state.stored(config))
    else:
        show(facts([(name, _shown(value)) for name, value in config.settings.items()]))


def _rotate_key(topology: str, store: Store, force: bool, as_json: bool) -> None:
    ledger = open_ledger(store, topology, create=False)
    with needing_pyarrow("to rotate keys of external streams"):
        from acker.streams.staging.external.rotating import rotate
    with noting(ledger, "rotate-keys", {"force": force}) as noted:
        dropped = ledger.run(rotate(ledger.core, force=force))
        noted.count = len(dropped)
    if as_json:
        show_json({"topology": topology, "rotated": dropped})
    elif not dropped:
        show(f"{topology} has no external streams")
    for stream, count in () if as_json else dropped.items():
        left = f", and rows of {count:,} open segments are foreign now" if count else ""
        show(f"stream {stream} has a new key{left}")


def _shown(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def _change(text: str) -> tuple[str, int | float | str]:
    name, equals, given = text.partition("=")
    if name not in SETTINGS:
        raise ValidationError(
            f"--set {name}: no setting of a topology{meant(name, SETTINGS)}; known are {', '.join(SETTINGS)}"
        )
    kind = SETTINGS[name].kind
    try:
        if not equals:
            raise ValueError("no value")
        return name, kind(given)
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, SETTINGS[name].values)
        raise ValidationError(f"--set {name}: expected {name}={what}, got {text!r}") from None


def remove(
    topology: TopologyName,
    store: OfStore,
    yes: Annotated[bool, typer.Option("--yes", help="It is meant: nothing brings it back.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also with trees in flight: no spout hears of them again.")
    ] = False,
    spout: Annotated[
        str, typer.Option("--spout", help="Only this spout, which must owe nothing: makes room for another.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Remove a topology with all that it holds: streams, kept rows, dead letters. Stop its jobs first.

    Refused while trees are in flight or have an outcome that is not confirmed, unless it is forced.
    """
    check_name(topology, "topology")
    removed = f"spout {spout!r} of topology {topology!r}" if spout else f"topology {topology!r}"
    if not yes:
        raise ValidationError(f"{removed} would be gone for good: if that is meant, add --yes")
    if spout:
        if force:
            raise ValidationError("--force: a spout that owes something is not removed")
        ledger = open_ledger(store, topology, create=False)
        with noting(ledger, "remove-spout", {"spout": spout}):
            ledger.run(remove_spout(ledger.core, spout))
        show_json({"topology": topology, "spout": spout}) if as_json else show(f"{removed} removed")
        return
    ledger = open_ledger(store, topology, create=False)
    with noting(ledger, "remove", {"force": force}):  # only a refusal stays
        dropped = store.run(removing(topology, force=force))
    if as_json:
        show_json({"topology": topology, "dropped": dropped})
    else:
        show(f"{topology} removed" + (f", with {dropped:,} trees" if dropped else ""))
