"""What tests share with tests/spark/bolts/test_interruptions.py."""

import redis

LONG = 120
"""Seconds that a request may be held up."""


def keys_of(url: str, pattern: str) -> int:
    with redis.Redis.from_url(url) as client:
        return sum(1 for _ in client.scan_iter(pattern, count=1000))
