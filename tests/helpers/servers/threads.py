"""Requests that a thread of their own sends, for tests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from acker.store.client import Store
from acker.store.operation import Reply, Request

Send = Callable[[Sequence[Request]], Awaitable[list[Reply]]]


def in_a_thread(store: Store) -> Send:
    """A sender through the other client, for tests that run on both."""
    return lambda requests: asyncio.to_thread(store.send, requests)
