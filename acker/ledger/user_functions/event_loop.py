"""The event loop of a process's asynchronous steps, in a separate thread.

So a session or a pool that a step opens serves the calls of all its workers.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_running: "tuple[int, asyncio.AbstractEventLoop, threading.Thread] | None" = None


def run(work: "Coroutine[Any, Any, T]") -> T:
    """Runs a coroutine in the loop, and waits for its result or error. The loop itself must not call it."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; a forked child has none yet."""
    global _running  # noqa: PLW0603 - it is the process's
    with _lock:
        if _running is None or _running[0] != os.getpid():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_turn, args=(loop,), name="asynchronous steps", daemon=True)
            thread.start()
            if _running is None:
                atexit.register(_end)
            _running = os.getpid(), loop, thread
        return _running[1]


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    stopped = False
    while not stopped:
        with contextlib.suppress(KeyboardInterrupt, SystemExit):  # raised by a step: its caller also gets it
            loop.run_forever()
            stopped = True
    loop.close()


def _end() -> None:
    if _running is not None and _running[0] == os.getpid():
        _running[1].call_soon_threadsafe(_running[1].stop)
        _running[2].join(1.0)


def _begin_anew() -> None:
    """Resets the state in a forked child, which may lack the thread that holds the lock."""
    global _lock  # noqa: PLW0603 - it is the process's
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)
