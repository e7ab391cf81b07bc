"""Segments of external streams that a subscription has not acked."""

import redis

from acker import Topology
from acker.inspect.locate.stuck import unacked
from tests.helpers.builders.external import source


def test_a_void_segment_is_not_acked_for_its_subscription(url: str, raw: redis.Redis) -> None:
    with Topology(url, "v", ackers=1, linger=None) as first, Topology(url, "v", linger=None) as second:
        items = first.incoming("items", subscription="count")
        second.incoming("items", subscription="other")
        headers = source(first, 2)
        first.flush()
        items.ack(items.extract_many(headers))
        first.flush()
        ledger = first.ledger
        assert ledger.run(unacked(ledger.core, "items", "count")) is None
        for key in raw.scan_iter("acker:{v:*"):
            if raw.type(key) == b"hash" and raw.hexists(key, "state"):
                raw.hset(key, "void", 1)
        waiting = ledger.run(unacked(ledger.core, "items", "count"))
        assert waiting is not None
        assert waiting.segments == 2
