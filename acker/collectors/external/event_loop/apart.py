"""Runs an operation whose own work takes long: a thread does that, and the event loop goes on meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from acker.errors import AckerError
from acker.store.async_client import AsyncStore
from acker.store.loops import AsyncHeartbeats
from acker.store.operation import Operation, Request, flights

T = TypeVar("T")


async def run(store: AsyncStore, operation: Operation[T], thread: ThreadPoolExecutor) -> T:
    """Runs an operation to its end and returns its result, as `AsyncStore.run` does.

    Args:
        store: The store.
        operation: The operation.
        thread: Has one thread, which computes what lies between requests. A call that is cancelled ends when
            the thread is at rest, so no later call meets it at work.
    """
    beats = AsyncHeartbeats(store.send)
    try:
        requests, end = await _step(thread, operation.send, None)
        while end is None:
            beats.note(requests)
            try:
                replies = [reply for flight in flights(requests) for reply in await store.send(flight)]
            except AckerError as error:
                requests, end = await _step(thread, operation.throw, error)
            else:
                requests, end = await _step(thread, operation.send, replies)
        return cast(T, end.value)
    finally:
        beats.end()


async def _step(
    thread: ThreadPoolExecutor, call: Callable[[Any], Sequence[Request]], value: Any
) -> tuple[Sequence[Request], StopIteration | None]:
    """Has the thread take an operation to its next requests, or to its end."""
    step = asyncio.get_running_loop().run_in_executor(thread, _advance, call, value)
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():
            try:
                await asyncio.wait([step])
            except asyncio.CancelledError:
                continue
        if not step.cancelled():
            step.exception()  # nobody else takes it
        raise


def _advance(
    call: Callable[[Any], Sequence[Request]], value: Any
) -> tuple[Sequence[Request], StopIteration | None]:
    """A StopIteration is a result here: no future takes it as an exception."""
    try:
        return call(value), None
    except StopIteration as end:
        return (), end
