"""Results that stand for work which nobody has done: of an `async def` that was called, of a thread."""

import inspect
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Thread


def undone(result: object) -> str:
    """The kind of such a result, as "coroutine" or "Future"; "" for any other. A coroutine is closed.

    Of a list or a tuple, that of its first such member. Raises what a future has raised that is done.
    """
    if result is None:
        return ""
    members = result if isinstance(result, list | tuple) else (result,)
    return next((kind for one in members if (kind := _kind(one))), "")


def _kind(result: object) -> str:
    if inspect.iscoroutine(result):
        result.close()  # or Python would warn, some time later, that nobody has awaited it
    waits = inspect.isawaitable(result) or inspect.isasyncgen(result) or isinstance(result, Iterator)
    if isinstance(result, Future):
        waits = not result.done()
        if not waits:
            result.result()
    elif isinstance(result, Thread):
        waits = result.ident is None or result.is_alive()
    return type(result).__name__ if waits else ""
