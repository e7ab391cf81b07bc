"""The scripts of topologies and their settings as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Mapping, Sequence

from acker.ledger.settings.config import TopologyConfig
from acker.store import function_keys, keys
from acker.store.operation import Request, Word, script


def open_topology(
    config: TopologyConfig, removals: bytes, until: int, fields: Mapping[str, int | str]
) -> Request:
    """Stores a configuration where there is none. removals, until: as in `acker.streams.log.kinds.Seen`."""
    name = config.name
    beside = [keys.streams(name), keys.lines(name), keys.steps(name), keys.step_numbers(name)]
    args = [removals, until, keys.removals(name), *beside, *_words(fields)]
    return script("open_topology", [keys.config(name)], args, config.wait)


def forget_topology(topology: str, epoch: str, ttl: int, beside: Sequence[bytes]) -> Request:
    """Removes the configuration of a topology of that epoch, and other keys beside it."""
    own = [keys.config(topology), keys.removals(topology), *beside]
    return script("forget_topology", own, [epoch, ttl])


def forget_keys(removals: bytes, number: int, ttl: int, gone: Sequence[bytes], *, last: bool) -> Request:
    """Removes keys where `removals` is the number that the begin of this removal has left.

    last: True if these keys end the removal.
    """
    return script("forget_keys", [removals, *gone], [number, ttl, int(last)])


def list_topology(name: str, on: bool, seen: tuple[bytes, int], ttl: int) -> Request:
    """Puts a topology on the list, or takes it off.

    seen: the mark beside the list as the caller has read it, and the time (ms) until which the call counts.
    """
    args: list[Word] = [name, *seen, int(on), ttl, keys.LISTED + name.encode()]
    return script("list_topology", [keys.TOPOLOGIES], args)


def name_stream(topology: str, stream: str, seen: bytes) -> Request:
    """Notes a stream among the streams of its topology. seen: the removals of the topology."""
    args: list[Word] = [
        stream,
        keys.config(topology),
        keys.removals(topology),
        seen,
        function_keys.named(topology),
    ]
    return script("name_stream", [keys.streams(topology)], args)


def configure(config: TopologyConfig, fields: Mapping[str, int | str]) -> Request:
    """Changes fields of a stored configuration."""
    return script("configure", [keys.config(config.name)], _words(fields), config.wait)


def _words(fields: Mapping[str, int | str]) -> list[Word]:
    return [word for field in fields.items() for word in field]


def read_epoch(topology: str, epoch: str) -> Request:
    """Reads the name that a topology has in this store, and gives it that one where it has none."""
    return script("read_epoch", [keys.config(topology)], [epoch])


def register_spout(config: TopologyConfig, spout: str, most: int) -> Request:
    """Registers a spout of a topology, unless it has its most spouts."""
    own = [keys.config(config.name)]
    return script("register_spout", own, [keys.SPOUT_FIELD + spout, most], config.wait)


def remove_spout(config: TopologyConfig, spout: str) -> Request:
    """Removes a spout from its topology."""
    return script("remove_spout", [keys.config(config.name)], [keys.SPOUT_FIELD + spout], config.wait)


def mark_removed(shard: keys.Shard, before: bytes, until: int, mark: str, ttl: int) -> Request:
    """Has a shard refuse all calls."""
    return script("mark_removed", [shard.removed], [before, until, mark, ttl])


def clear_removed(shard: keys.Shard, before: bytes, ttl: int) -> Request:
    """Lets a shard of a removed topology take calls again."""
    return script("clear_removed", [shard.removed], [before, ttl])


def unlink_removed(shard: keys.Shard, gone: Sequence[bytes], slabs: Sequence[bytes] = ()) -> Request:
    """Removes keys, and fields of the hash of slabs, of a shard that refuses all calls."""
    return script("unlink_removed", [shard.removed, shard.slabs, *gone], slabs)
