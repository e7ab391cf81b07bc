"""Bells ring for what comes to streams, whatever becomes of these."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from acker.store import keys
from acker.store.client import Store
from acker.workers.wakeups import Bell

_SECONDS = 10
_A, _B = (keys.Stream("t", name).entries for name in ("a", "b"))


@contextmanager
def ringing(url: str, *streams: bytes) -> Iterator[list[threading.Event]]:
    bell = Bell(Store(url), threading.Event())
    events = [bell.listen([stream]) for stream in streams]
    thread = threading.Thread(target=bell.run)
    thread.start()
    try:
        yield events
    finally:
        bell.end()
        thread.join()


def rings(event: threading.Event) -> bool:
    heard = event.wait(_SECONDS)
    event.clear()
    return heard


def test_each_rings_for_its_own_stream_among_many(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    with ringing(valkey_url, _A, _B) as (first, second):
        for _ in range(3):
            valkey_raw.xadd(_A, {"n": 1})
            assert rings(first)
        with valkey_raw.pipeline() as pipe:
            for _ in range(1_000):
                pipe.xadd(_A, {"n": 1})
            pipe.execute()
        valkey_raw.xadd(_B, {"n": 1})
        assert rings(first)
        assert rings(second)
        valkey_raw.xadd(_B, {"n": 2})
        assert rings(second)


def test_it_rings_for_entries_after_a_rollback(valkey_url: str, valkey_raw: "redis.Redis") -> None:
    with ringing(valkey_url, _A) as (event,):
        valkey_raw.xadd(_A, {"n": 1}, "9-1")
        assert rings(event)
        with valkey_raw.pipeline(transaction=True) as pipe:
            pipe.delete(_A)
            pipe.xadd(_A, {"n": 1}, "5-1")
            pipe.execute()
        assert rings(event)
