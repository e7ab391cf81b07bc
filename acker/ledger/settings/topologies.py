"""Topologies as a store knows them: their names, and for each its configuration and its spouts.

What stands here is kept beside the shards, and read when a topology is opened; `acker.ledger.calls.core`
works on the shards.
"""

import secrets
from collections.abc import Collection
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
from acker.store.replies import pairs

_TIMEOUT = "message_timeout"
_STORED_TIMEOUT = "message_timeout_ms"
_COUNTED_MS = 50
"""Milliseconds in which replicas that are there say that they have what their server has."""


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """A topology as it is stored, and the names of its spouts."""

    config: TopologyConfig
    spouts: frozenset[str]


def names() -> Operation[list[str]]:
    """The names of all topologies, sorted; what is no name of one is left out."""
    [found] = yield [command("SMEMBERS", keys.TOPOLOGIES)]
    return sorted(filter(is_name, (name.decode("utf-8", "replace") for name in found)))


def register(name: str, asked: Settings, create: bool = True) -> Operation[StoredTopology]:
    """Stores the configuration of a topology at its first use, compares with what is stored after that.

    Raises ValidationError for bad values, TopologyConfigError for other values than the stored ones,
    UnknownTopology where there is none and `create` is False, and UnreadableRecord.
    """
    check_name(name, "topology")
    given = check_settings(asked)  # each alone: how they agree is known only with the stored ones
    key = keys.config(name)
    stored, listed = yield [command("HGETALL", key), command("SISMEMBER", keys.TOPOLOGIES, name)]
    if create:
        requests = [] if listed else [command("SADD", keys.TOPOLOGIES, name)]
        if "schema" not in _fields(stored):
            wanted = TopologyConfig(name, **given)  # type: ignore[arg-type]
            yield from _check_wait(wanted)
            fields = {"schema": wanted.schema} | _stored(wanted, SETTINGS)
            requests.append(scripts.open_topology(wanted, fields))
            replies = yield requests
            stored = replies[-1]
        elif requests:
            yield requests
    values = _fields(stored)
    if "schema" not in values:
        raise UnknownTopology.named(name, (yield from _meant(name)))
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
    return StoredTopology(config, _spouts(values))


def changed(stored: TopologyConfig, asked: Settings) -> TopologyConfig:
    """A configuration with other settings; None leaves one as it is. Raises ValidationError."""
    return replace(stored, **check_settings(asked))  # type: ignore[arg-type]


def configure(stored: TopologyConfig, asked: Settings) -> Operation[TopologyConfig]:
    """Changes settings of a topology, all of them at once or none; returns the configuration as it is then.

    Whether that is safe now is for the caller to know (`acker.inspect.operate.configure`). Raises
    ValidationError, and UnknownTopology where it was removed meanwhile.
    """
    wanted = changed(stored, asked)
    yield from _check_wait(wanted)
    # Settings that stay as they are may be others by now.
    fields = _stored(wanted, [one for one in SETTINGS if getattr(wanted, one) != getattr(stored, one)])
    if not fields:
        return stored
    [reply] = yield [scripts.configure(wanted, fields)]
    values = _fields(reply)
    if "schema" not in values:
        raise UnknownTopology.named(stored.name)
    return _config(stored.name, values)


def _check_wait(wanted: TopologyConfig) -> Operation[None]:
    """Raises StoreError where a server lacks the command, the file or the replicas that a track waits for.

    Replicas are counted at once: a wait for some that are not there would last until the store's time is up.
    """
    shards = (keys.Shard(wanted.name, number, wanted.ackers) for number in range(wanted.ackers))
    places = [keys.config(wanted.name), *(one.clock for one in shards)]
    if wanted.wait_fsync:
        yield [Request(one, ["WAITAOF", 1, 0, 1]) for one in places]
    if wanted.wait_replicas:
        found = yield [Request(one, ["WAIT", wanted.wait_replicas, _COUNTED_MS]) for one in places]
        fewest = min(cast(list[int], found))
        if fewest < wanted.wait_replicas:
            raise StoreError(
                f"wait_replicas: expected at most {fewest}, for so many replicas of the store's server "
                f"answer now, got {wanted.wait_replicas}"
            )


def _stored(config: TopologyConfig, settings: Collection[str]) -> dict[str, int | str]:
    """Settings as fields of the stored configuration, and their values."""
    values = {one: getattr(config, one) for one in settings if one != _TIMEOUT}
    return values | ({_STORED_TIMEOUT: config.timeout_ms} if _TIMEOUT in settings else {})


def register_again(config: TopologyConfig) -> Operation[StoredTopology]:
    """Stores a configuration again, in a store that lost it. TopologyConfigError where there is another."""
    return (yield from register(config.name, config.settings))


def spouts(name: str) -> Operation[frozenset[str] | None]:
    """The spouts of a topology; None where the store does not know the topology."""
    [stored] = yield [command("HGETALL", keys.config(name))]
    values = _fields(stored)
    return _spouts(values) if "schema" in values else None


def life(topology: str) -> Operation[str]:
    """A random name that the topology has in this store, until the store loses it; "" where it is not."""
    [found] = yield [scripts.read_life(topology, secrets.token_hex(8))]
    return bytes(found).decode()


def register_spout(config: TopologyConfig, name: str) -> Operation[None]:
    """Notes a spout among those of its topology; SpoutsFull where there are 64 others already."""
    [reply] = yield [scripts.register_spout(config, name, MAX_SPOUTS)]
    if isinstance(reply, redis.ResponseError):
        raise SpoutsFull(
            f"spout {name!r} of topology {config.name!r}: {str(reply).removeprefix('ACKER ')}; one that owes "
            f"nothing is removed by `acker remove {config.name} --spout NAME --yes`"
        )


def forget_spout(config: TopologyConfig, name: str) -> Operation[None]:
    """Takes a spout from those of its topology."""
    yield [scripts.forget_spout(config, name)]


def _meant(name: str) -> Operation[str]:
    """Which topology was probably meant, where the store's user may list them."""
    try:
        return meant(name, (yield from names()))
    except AckerError:
        return ""


def _config(name: str, values: dict[str, str]) -> TopologyConfig:
    with records.reading(f"the configuration of topology {name!r}"):
        others = {
            setting: values[setting] if known.kind is str else int(values[setting])
            for setting, known in SETTINGS.items()
            if setting != _TIMEOUT
        }
        timeout = int(values[_STORED_TIMEOUT]) / 1000
        return TopologyConfig(name, message_timeout=timeout, **others)  # type: ignore[arg-type]


def _spouts(values: dict[str, str]) -> frozenset[str]:
    """The spouts of a configuration; what is no name of one is left out."""
    found = (field[len(keys.SPOUT_FIELD) :] for field in values if field.startswith(keys.SPOUT_FIELD))
    return frozenset(filter(is_name, found))


def _fields(reply: Reply) -> dict[str, str]:
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in pairs(reply).items()
    }
