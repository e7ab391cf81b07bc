"""Results that stand for unfinished work: of a call of an `async def`, of a thread.

This check looks at the results of all user functions whose return acks something: basic bolts, steps and
gathers of lines and functions, bolts of Spark jobs, `collector.map`, `on_outcomes`.
"""

import inspect
import io
import sys
from collections.abc import Iterator
from typing import Any

from acker.errors import PermanentFailure, class_name

_PLAIN = {bool, bytes, dict, float, int, list, set, str, tuple, type(None)}
"""Types that stand for no work by themselves; most results are of these."""


def undone(result: object) -> str:
    """The kind of an unfinished result, such as "coroutine" or "Future"; "" for any other. Closes coroutines.

    The kind of a list, a tuple, a set or a dict is the kind of its first such member. Raises the error of a
    finished future.
    """
    if result is None:
        return ""
    members = [result]
    if isinstance(result, dict):
        members = list(result.values())
    elif isinstance(result, list | tuple | set | frozenset):
        members = list(result)
    kinds = [kind for one in members if type(one) not in _PLAIN and (kind := _kind(one))]
    return kinds[0] if kinds else ""


def check_done(result: object, *, asynchronous: bool = True) -> None:
    """Raises PermanentFailure if a function returned before its work was done.

    asynchronous: True if an `async def` function would be taken.
    """
    if kind := undone(result):
        if asynchronous:
            raise PermanentFailure(
                f"expected a function that is done when it returns, or an asynchronous one, got a {kind}"
            )
        raise PermanentFailure(
            f"expected a function that is done when it returns, got one that returned a {kind}: its work "
            "is not done. Run it in the function, as by asyncio.run(...) or .result()"
        )


def _kind(result: Any) -> str:
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python would warn later that it was never awaited
    waits = inspect.isawaitable(result) or inspect.isasyncgen(result) or _comes_later(result)
    if _can(result, "done", "result", "add_done_callback"):
        waits = not result.done()
        if not waits:
            result.result()
    elif _can(result, "succeeded", "failed", "add_errback"):  # such as kafka-python's
        waits = not (result.succeeded() or result.failed())
        if result.failed():
            raise result.exception
    elif _of(result, "threading", "Thread") or _of(result, "multiprocessing.process", "BaseProcess"):
        waits = result.ident is None or result.is_alive()
    elif _of(result, "multiprocessing.pool", "ApplyResult"):
        waits = not result.ready()
        if not waits:
            result.get()
    elif _of(result, "subprocess", "Popen"):
        waits = result.poll() is None
    return class_name(result) if waits else ""


def _can(result: object, *methods: str) -> bool:
    """True for a future of any library, by the methods of its class."""
    return all(callable(getattr(type(result), name, None)) for name in methods)


def _comes_later(result: object) -> bool:
    """True for an iterator, such as a generator: its items are not computed yet.

    Files and cursors of databases are also iterators, but stand for no work.
    """
    return isinstance(result, Iterator) and not (isinstance(result, io.IOBase) or hasattr(result, "fetchone"))


def _of(result: object, module: str, name: str) -> bool:
    """True if an object is of a class, of a module that is loaded where there can be any."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(result, kind)
