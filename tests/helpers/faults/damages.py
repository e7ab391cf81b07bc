"""Damages by a hand or a fault that make a topology unreadable: `damaged`, of one shard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from acker.ledger.client import Ledger, open_ledger
from acker.store import keys
from acker.store.client import Store

SHARD = keys.Shard("damaged", 0, 1)
Damage = Callable[[redis.Redis], object]


def _field(key: bytes, field: str, value: str) -> Damage:
    return lambda raw: raw.hset(key, field, value)


def _of_another_kind(key: bytes) -> Damage:
    def damage(raw: redis.Redis) -> None:
        raw.delete(key)
        raw.lpush(key, "of another kind")

    return damage


DAMAGES: dict[str, Damage] = {
    "setting": _field(keys.config("damaged"), "ackers", "many"),
    "version": _field(keys.config("damaged"), "schema", "1"),
    "configuration": _of_another_kind(keys.config("damaged")),
    "rotations": _field(SHARD.clock, "rotations", "many"),
    "rotated_at": _field(SHARD.clock, "rotated_at", "many"),
    "counter": _field(SHARD.counters, "acked", "many"),
    "less than none": _field(SHARD.counters, "acked", str(-(2**40))),
    "thresholds": _of_another_kind(keys.health("damaged")),
    "steps": _of_another_kind(keys.steps("damaged")),
}


@contextmanager
def damage(url: str, how: str) -> Iterator[None]:
    """Does one of `DAMAGES`, and names a topology by what is no name; keys of another kind go at the end."""
    with redis.Redis.from_url(url) as raw:
        DAMAGES[how](raw)
        raw.sadd(keys.TOPOLOGIES, "no name of one")
        yield
        raw.delete(*(key for key in raw.scan_iter() if raw.type(key) == b"list"), b"absent")


def two(url: str) -> tuple[Ledger, Ledger]:
    """The topologies `damaged`, which is whole still, and `words`."""
    damaged, words = (open_ledger(Store(url), name, ackers=1) for name in ("damaged", "words"))
    for ledger in (damaged, words):
        ledger.tick(force=True)
    return damaged, words
