"""Interrupts at a line: what Ctrl-C, a signal handler that raises, or a lack of memory does to a program."""

import dis
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread
from types import CodeType, FrameType
from typing import Any

import pytest

from acker.store.client import Store
from acker.store.operation import Reply, Request

ROOT = Path(__file__).parents[3]
Line = tuple[CodeType, int]
Moment = tuple[Line, ...]
_PATIENCE = 60.0
"""Seconds after which what is checked counts as hanging."""


def _safe(frame: FrameType) -> bool:
    """True if no interrupt can come at a line.

    The interpreter looks for signals after calls and jumps. It gives a lock of its own back in the step that
    leaves the block, before which it tells of the line of the `with` once more (and sets aside what the block
    returns); and a `try:` does nothing.
    """
    code, text = frame.f_code, linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    step = dis.opname[code.co_code[frame.f_lasti]]
    given_back = text.startswith("with ") or text == "if turn == [True]:" or text == "self._reading.release()"
    return step == "NOP" or (given_back and (step in ("LOAD_CONST", "SWAP") or code.co_name == "_in_turn"))


@contextmanager
def _traced(files: Sequence[str], line: Callable[[Moment], None]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(tuple(files)):
            return None
        if event == "line" and not _safe(frame):
            line(((frame.f_code, frame.f_lineno),))
        return trace

    with _tracing(trace):
        yield


_CHECKED = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"}
"""Steps of the interpreter after which it looks for signals, and for exceptions that others have set."""


def _where(frame: FrameType | None) -> tuple[Line, ...]:
    """A step of the interpreter, and from where it was called: a library's own steps come from everywhere."""
    lines: list[Line] = []
    while frame is not None and len(lines) < 3:
        lines.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(lines)


@contextmanager
def _stepped(files: Sequence[str], come: Callable[[Moment], None]) -> Iterator[None]:
    def trace(entered: FrameType, _: str, __: Any) -> Any:
        if not entered.f_code.co_filename.endswith(tuple(files)):
            return None
        entered.f_trace_opcodes, entered.f_trace_lines = True, False
        before = -1

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            if event == "opcode":
                last, before = before, frame.f_lasti
                if last >= 0 and dis.opname[frame.f_code.co_code[last]] in _CHECKED:
                    come(_where(frame))
            return step

        return step

    with _tracing(trace):
        yield


@contextmanager
def _tracing(trace: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def moments(
    files: Sequence[str], work: Callable[[], object], last: bool = False, *, signals: bool = False
) -> list[tuple[Moment, int]]:
    """The lines of files that some work runs through in this thread, each with how often it had come before.

    Of a line that comes many times: the first time, or the last. signals: in place of lines, the steps of the
    interpreter at which an interrupt may come.
    """
    gone = [file for file in files if file.startswith("acker/") and not (ROOT / file).is_file()]
    assert not gone, f"{gone}: expected files of the checkout"
    seen: dict[Moment, int] = {}

    def note(moment: Moment) -> None:
        seen[moment] = seen.get(moment, 0) + 1

    with (_stepped if signals else _traced)(files, note):
        work()
    return [(moment, times - 1 if last else 0) for moment, times in seen.items() if times > 1 or not last]


def interrupted(
    files: Sequence[str],
    work: Callable[[], object],
    moment: tuple[Moment, int],
    error: type[BaseException],
    *,
    signals: bool = False,
) -> bool:
    """Does some work, which is interrupted at a moment; whether it was. signals: as of `moments`."""
    wanted, left = moment
    struck = False

    def strike(come: Moment) -> None:
        nonlocal left, struck
        if come == wanted and not struck:
            struck = left == 0
            left -= 1
            if struck:
                raise error("interrupted")

    try:
        with (_stepped if signals else _traced)(files, strike):
            work()
    except error:
        pass
    return struck


def each(files: Sequence[str], work: Callable[[], object], check: Callable[[], object]) -> int:
    """Interrupts work at each step at which an interrupt may come; returns how often.

    It checks after each, in another thread, for the one that was interrupted takes a lock of its own again.
    """
    struck = 0
    for turn, moment in enumerate(moments(files, work, signals=True)):
        error = TimeoutError if turn % 3 == 2 else KeyboardInterrupt
        struck += interrupted(files, work, moment, error, signals=True)
        _checked(check, f"at {shown(moment[0])}")
    return struck


def each_answer(
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[], object],
    check: Callable[[], object],
    error: BaseException,
) -> int:
    """Interrupts work whenever the store has answered it, before it has the answer; checks as `each`."""
    send, caller = Store.send, current_thread()
    number, left, struck = -1, 0, True

    def answered(store: Store, requests: Sequence[Request]) -> list[Reply]:
        nonlocal left, struck
        replies = send(store, requests)
        if current_thread() is caller:
            struck = struck or left == 0
            left -= 1
            if left == -1:
                raise error
        return replies

    while struck:
        number += 1
        left, struck = number, False
        with monkeypatch.context() as patch, suppress(type(error)):
            patch.setattr(Store, "send", answered)
            work()
        _checked(check, f"after answer {number}")
    return number


def _checked(check: Callable[[], object], where: str) -> None:
    ended: Future[object] = Future()
    Thread(target=_run, args=(check, ended), daemon=True).start()
    try:
        ended.result(_PATIENCE)
    except BaseException as fault:
        raise AssertionError(f"after an interrupt {where}") from fault


def _run(work: Callable[[], object], ended: "Future[object]") -> None:
    try:
        ended.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting thread has to know
        ended.set_exception(error)


def shown(moment: Moment) -> str:
    """The lines of a step, from within."""
    lines = (
        (code, next((line for begins, ends, line in code.co_lines() if begins <= at < ends), None))
        for code, at in moment
    )
    return " < ".join(
        f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_qualname}" for code, line in lines
    )
