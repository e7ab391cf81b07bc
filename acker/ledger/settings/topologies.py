"""Topologies of a store: their names, and the configuration and the spouts of each.

The store keeps these beside the shards, and a program reads them when it opens a topology;
`acker.ledger.calls.core` works on the shards.
"""

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

import redis

from acker.errors import AckerError, SpoutsFull, StoreError, TopologyConfigError, UnknownTopology
from acker.ledger.settings import scripts
from acker.ledger.settings.config import (
    MAX_SPOUTS,
    SCHEMA_VERSION,
    SETTINGS,
    Settings,
    TopologyConfig,
    check_name,
    check_settings,
    is_name,
)
from acker.ledger.settings.suggestions import meant
from acker.store import keys, records
from acker.store.operation import Operation, Reply, Request, command
from acker.store.replies import milliseconds, pairs

_TIMEOUT = "message_timeout"
_STORED_TIMEOUT = "message_timeout_ms"
_LATER = ("stamp_ttl", "external_waiting_bytes")
"""Settings that topologies made before them lack, which have the default there."""
REMEMBERED = 86_400
"""Seconds for which removals are remembered: far longer than a call is sent again."""
VALID = 3_600
"""Seconds for which a call that makes something is carried out."""
LATE = "ACKER LATE"
"""The reply to a call that is a late copy: its caller has not seen a removal."""
ATTEMPTS = 4
"""Sends of a call where the topology, or what the call is for, is removed again and again."""
_FLIGHT = 64
"""Most shards in one batch of requests."""
_COUNTED_MS = 50
"""Milliseconds in which connected replicas confirm the writes of their server."""


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """A stored topology, the names of its spouts, and when one of its name was removed last, lately."""

    config: TopologyConfig
    spouts: frozenset[str]
    removals: bytes = b""


def names() -> Operation[list[str]]:
    """The names of all topologies, sorted, without malformed names."""
    [found] = yield [command("SMEMBERS", keys.TOPOLOGIES)]
    return sorted(filter(is_name, (name.decode("utf-8", "replace") for name in found)))


def register(name: str, asked: Settings, create: bool = True) -> Operation[StoredTopology]:
    """Stores the configuration of a topology at its first use, and later compares with the stored one.

    Raises ValidationError for bad values, TopologyConfigError for other values than the stored ones,
    UnknownTopology if there is no topology and `create` is False, and UnreadableRecord.
    """
    check_name(name, "topology")
    given = check_settings(asked)  # each alone: their combination is checked with the stored ones
    key = keys.config(name)
    stored, listed, removals = yield [
        command("HGETALL", key),
        command("SISMEMBER", keys.TOPOLOGIES, name),
        command("GET", keys.removals(name)),
    ]
    begun = "schema" in _fields(stored)
    if create and not begun:
        wanted = TopologyConfig(name, **given)  # type: ignore[arg-type]
        yield from _check_wait(wanted)
        fields = _stored(wanted, SETTINGS) | {"schema": wanted.schema, "epoch": secrets.token_hex(8)}
        stored = yield from _store(wanted, fields)
    values = _fields(stored)
    if "schema" not in values:
        raise UnknownTopology.for_name(name, (yield from _meant(name)))
    schema = values["schema"]
    if schema != str(SCHEMA_VERSION):
        stored_schema = int(schema) if schema.isascii() and schema.isdigit() else schema
        raise TopologyConfigError(name, {"schema": (stored_schema, SCHEMA_VERSION)})
    config = _config(name, values)
    differences: dict[str, tuple[object, object]] = {
        setting: (getattr(config, setting), value)
        for setting, value in given.items()
        if getattr(config, setting) != value
        and not (setting == _TIMEOUT and config.timeout_ms == round(value * 1000))
    }
    if differences:
        raise TopologyConfigError(name, differences)
    if create and not (begun and listed):
        yield from _clear_removed(config)
        # Last of all: each opener finishes a topology that is not listed, whose creator may have stopped.
        yield from _list(name)
    return StoredTopology(config, _spouts(values), removals or b"")


def _store(config: TopologyConfig, fields: dict[str, int | str]) -> Operation[Reply]:
    """Stores the configuration of a topology, unless it is there; returns the stored one.

    A late copy of the call is refused. So it is sent again where the topology was removed at that moment.
    """
    key = keys.removals(config.name)
    for _ in range(ATTEMPTS):
        found, instant = yield _looks(key)
        until = milliseconds(instant) + 1000 * VALID
        [stored] = yield [scripts.open_topology(config, found or b"", until, fields)]
        if not is_late(stored):
            return stored
    raise removed_again(config.name)


def _list(name: str) -> Operation[None]:
    """Puts a topology on the list of topologies, unless it was removed meanwhile."""
    for _ in range(ATTEMPTS):
        listed, instant, is_there = yield [
            *_looks(keys.LISTED + name.encode()),
            command("EXISTS", keys.config(name)),
        ]
        if not is_there:
            return
        seen = listed or b"", milliseconds(instant) + 1000 * VALID
        [reply] = yield [scripts.list_topology(name, True, seen, REMEMBERED)]
        if not is_late(reply):
            return


def unlist(name: str, epoch: str) -> Operation[None]:
    """Takes a topology of that epoch off the list of topologies; not one that was made anew meanwhile."""
    listed, instant, stored = yield [
        *_looks(keys.LISTED + name.encode()),
        command("HGET", keys.config(name), "epoch"),
    ]
    if stored == epoch.encode():
        seen = listed or b"", milliseconds(instant) + 1000 * VALID
        yield [scripts.list_topology(name, False, seen, REMEMBERED)]


def is_late(reply: Reply) -> bool:
    """True if a call was refused because its caller has not seen a removal."""
    return isinstance(reply, redis.ResponseError) and str(reply) == LATE


def removed_again(topology: str) -> AckerError:
    """The error of a call before whose every send a topology was removed."""
    return AckerError(f"topology {topology!r} was removed {ATTEMPTS} times while something of it was made")


def name_stream(topology: str, stream: str, seen: bytes) -> Request:
    """Notes a stream among the streams of its topology (lua/ledger/settings/name_stream.lua)."""
    return scripts.name_stream(topology, stream, seen)


def forget(topology: str, epoch: str, beside: Sequence[bytes]) -> Request:
    """Removes the configuration of a topology of that epoch, and other keys beside it, at once."""
    return scripts.forget_topology(topology, epoch, REMEMBERED, beside)


def forget_keys(
    removals: bytes, gone: Sequence[bytes], is_same: Callable[[], Operation[bool]]
) -> Operation[None]:
    """Removes keys whose names others may use again, unless `is_same` says that they are others' by now.

    Raises AckerError if other processes remove the same again and again.
    """
    for _ in range(ATTEMPTS):
        [number, _] = yield note_removal(removals)
        if not (yield from is_same()):
            return
        if (yield from forget_part(removals, number, gone, last=True)):
            return
    raise removed_by_others(gone[0])


def forget_part(
    removals: bytes, number: int, gone: Sequence[bytes], *, last: bool = False
) -> Operation[bool]:
    """Removes keys of a removal that `note_removal` has begun; False if they may be others' by now.

    Args:
        removals: The key of the removals.
        number: The reply to `note_removal`.
        gone: The keys.
        last: True if they end the removal.
    """
    [reply] = yield [scripts.forget_keys(removals, number, REMEMBERED, gone, last=last)]
    return bool(reply)


def removed_by_others(key: bytes) -> AckerError:
    """The error of a removal that other processes have begun, too, each time."""
    return AckerError(
        f"other processes have removed {key!r} {ATTEMPTS} times at this moment: remove it again"
    )


def note_removal(removals: bytes) -> list[Request]:
    """Requests that note a removal: no call whose caller has not seen it makes anything anew."""
    return [command("INCRBY", removals, 1), command("EXPIRE", removals, REMEMBERED)]


def _clear_removed(config: TopologyConfig) -> Operation[None]:
    """Lets the shards of a topology made anew take calls, where one of its name was removed lately."""
    count = config.ackers
    shards = [keys.Shard(config.name, number, count) for number in range(count)]
    marks = list[Reply]()
    for first in range(0, count, _FLIGHT):
        marks += yield [command("GET", shard.removed) for shard in shards[first : first + _FLIGHT]]
    marked = [(shard, mark) for shard, mark in zip(shards, marks, strict=True) if mark is not None]
    for first in range(0, len(marked), _FLIGHT):
        yield [scripts.clear_removed(*one, REMEMBERED) for one in marked[first : first + _FLIGHT]]


def read_marks(marks: Sequence[bytes], valid: int = VALID) -> Operation[list[tuple[bytes, int]]]:
    """The mark of removal at each key, and the time (ms) until which a call that goes by it counts.

    valid: Seconds until then.
    """
    replies = yield [request for key in marks for request in _looks(key)]
    return [
        (mark or b"", milliseconds(at) + 1000 * valid)
        for mark, at in zip(replies[::2], replies[1::2], strict=True)
    ]


def _looks(key: bytes) -> list[Request]:
    return [command("GET", key), Request(key, ["TIME"])]


def mark_removed(shards: Sequence[keys.Shard], seen: Sequence[tuple[bytes, int]]) -> Operation[bool]:
    """Has shards refuse all calls for a day (lua/ledger/includes/shard.lua). seen: of `read_marks`.

    Returns False if their topology was removed and made anew since: others may be marked then.
    """
    mark = secrets.token_hex(8)
    replies = yield [
        scripts.mark_removed(shard, *one, mark, REMEMBERED) for shard, one in zip(shards, seen, strict=True)
    ]
    return not any(isinstance(reply, redis.ResponseError) for reply in replies)


def unlink_removed(shard: keys.Shard, gone: Sequence[bytes], slabs: Sequence[bytes] = ()) -> Request:
    """Removes keys of a shard, and fields of its hash of slabs, unless its topology was made anew."""
    return scripts.unlink_removed(shard, gone, slabs)


def changed(stored: TopologyConfig, asked: Settings) -> TopologyConfig:
    """A configuration with other settings; None keeps a setting. Raises ValidationError."""
    return replace(stored, **check_settings(asked))  # type: ignore[arg-type]


def configure(stored: TopologyConfig, asked: Settings) -> Operation[TopologyConfig]:
    """Changes settings of a topology, all of them at once or none; returns the new configuration.

    The caller checks that the change is safe now (`acker.inspect.operate.configure`). Raises ValidationError,
    and UnknownTopology if the topology was removed meanwhile.
    """
    wanted = changed(stored, asked)
    yield from _check_wait(wanted)
    # Unchanged settings may have other values by now.
    fields = _stored(wanted, [one for one in SETTINGS if getattr(wanted, one) != getattr(stored, one)])
    if not fields:
        return stored
    [reply] = yield [scripts.configure(wanted, fields)]
    values = _fields(reply)
    if "schema" not in values:
        raise UnknownTopology.for_name(stored.name)
    return _config(stored.name, values)


def _check_wait(wanted: TopologyConfig) -> Operation[None]:
    """Raises StoreError if a server lacks the command, the file or the replicas that a track waits for.

    Replicas are counted at once: a wait for missing ones would last until the store's time-out.
    """
    shards = (keys.Shard(wanted.name, number, wanted.ackers) for number in range(wanted.ackers))
    places = [keys.config(wanted.name), *(shard.clock for shard in shards)]
    if wanted.wait_fsync:
        yield [Request(key, ["WAITAOF", 1, 0, 1]) for key in places]
    if wanted.wait_replicas:
        replicas = yield [Request(key, ["WAIT", wanted.wait_replicas, _COUNTED_MS]) for key in places]
        fewest = min(cast(list[int], replicas))
        if fewest < wanted.wait_replicas:
            raise StoreError(
                f"wait_replicas: expected at most {fewest}, because so many replicas of the store's server "
                f"answer now, got {wanted.wait_replicas}"
            )


def _stored(config: TopologyConfig, settings: Collection[str]) -> dict[str, int | str]:
    """Settings as fields of the stored configuration, and their values."""
    values = {one: getattr(config, one) for one in settings if one != _TIMEOUT}
    return values | ({_STORED_TIMEOUT: config.timeout_ms} if _TIMEOUT in settings else {})


def register_again(config: TopologyConfig) -> Operation[StoredTopology]:
    """Stores a configuration again in a store that lost it. Raises TopologyConfigError for another one."""
    return (yield from register(config.name, config.settings))


def spouts(name: str) -> Operation[frozenset[str] | None]:
    """The spouts of a topology; None if the store does not hold the topology."""
    [stored] = yield [command("HGETALL", keys.config(name))]
    values = _fields(stored)
    return _spouts(values) if "schema" in values else None


def epoch(topology: str) -> Operation[str]:
    """A random name that the topology has in this store, until the store loses it; "" where it is not."""
    [found] = yield [scripts.read_epoch(topology, secrets.token_hex(8))]
    return bytes(found).decode()


def register_spout(config: TopologyConfig, name: str) -> Operation[None]:
    """Registers a spout of its topology; raises SpoutsFull if there are 64 others already."""
    [reply] = yield [scripts.register_spout(config, name, MAX_SPOUTS)]
    if isinstance(reply, redis.ResponseError):
        raise SpoutsFull(
            f"spout {name!r} of topology {config.name!r}: {str(reply).removeprefix('ACKER ')}. Remove "
            f"an unused one with `acker remove {config.name} --spout NAME --yes`"
        )


def remove_spout(config: TopologyConfig, name: str) -> Operation[None]:
    """Removes a spout from its topology."""
    yield [scripts.remove_spout(config, name)]


def _meant(name: str) -> Operation[str]:
    """A suggestion for an unknown topology, if the store's user may list the topologies."""
    try:
        return meant(name, (yield from names()))
    except AckerError:
        return ""


def _config(name: str, values: dict[str, str]) -> TopologyConfig:
    with records.reading(f"the configuration of topology {name!r}"):
        others = {
            setting: values[setting] if known.kind is str else int(values[setting])
            for setting, known in SETTINGS.items()
            if setting != _TIMEOUT and (setting in values or setting not in _LATER)
        }
        timeout = int(values[_STORED_TIMEOUT]) / 1000
        return TopologyConfig(name, message_timeout=timeout, **others)  # type: ignore[arg-type]


def _spouts(values: dict[str, str]) -> frozenset[str]:
    """The spouts of a configuration, without malformed names."""
    found = (field[len(keys.SPOUT_FIELD) :] for field in values if field.startswith(keys.SPOUT_FIELD))
    return frozenset(filter(is_name, found))


def _fields(reply: Reply) -> dict[str, str]:
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in pairs(reply).items()
    }
