"""Tickers that run in threads of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from acker.ledger.ticker import Ticker


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
