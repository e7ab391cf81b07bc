"""Tickers that run in threads of a test, and heartbeats of commits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from acker.ledger.client import Ledger
from acker.ledger.tick.ticker import Ticker
from acker.store import keys
from acker.streams.log import heartbeats
from tests.helpers.servers.servers import raw_client


@contextmanager
def running(*tickers: Ticker) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=ticker.run, args=(stop,)) for ticker in tickers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)


def age(ledger: Ledger, seconds: float) -> None:
    """Makes the last heartbeats of all commits older by so many seconds."""
    key = keys.committing(ledger.config.name)
    with raw_client(ledger.store.url) as client:
        for name in client.hkeys(key):
            if name.endswith(b":at"):
                client.hincrby(key, name, -round(seconds * 1000))


def silence(ledger: Ledger) -> None:
    """Makes all commits miss the heartbeats after which they count as dead."""
    age(ledger, heartbeats.MISSED * heartbeats.period(ledger.core))
