"""Interrupts at a line: what Ctrl-C, a signal handler that raises, or a lack of memory does to a program."""

import dis
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

Line = tuple[CodeType, int]


def _safe(frame: FrameType) -> bool:
    """Whether a line is one where no interrupt can come.

    The interpreter looks for signals after calls and jumps. It gives a lock of its own back in the step that
    leaves the block, before which it tells of the line of the `with` once more (and sets aside what the block
    returns); and a `try:` does nothing.
    """
    code, text = frame.f_code, linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    step = dis.opname[code.co_code[frame.f_lasti]]
    given_back = text.startswith("with ") or text == "if turn == [True]:" or text == "self._reading.release()"
    return step == "NOP" or (given_back and (step in ("LOAD_CONST", "SWAP") or code.co_name == "_in_turn"))


@contextmanager
def _traced(files: Sequence[str], line: Callable[[Line], None]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(tuple(files)):
            return None
        if event == "line" and not _safe(frame):
            line((frame.f_code, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def moments(files: Sequence[str], work: Callable[[], None], last: bool = False) -> list[tuple[Line, int]]:
    """The lines of files that some work runs through in this thread, each with how often it had come before.

    Of a line that comes many times: the first time, or the last.
    """
    seen: dict[Line, int] = {}

    def note(line: Line) -> None:
        seen[line] = seen.get(line, 0) + 1

    with _traced(files, note):
        work()
    return [(line, times - 1 if last else 0) for line, times in seen.items() if times > 1 or not last]


def interrupted(
    files: Sequence[str], work: Callable[[], None], moment: tuple[Line, int], error: type[BaseException]
) -> bool:
    """Does some work, which is interrupted at a moment; whether it was."""
    wanted, left = moment
    struck = False

    def strike(line: Line) -> None:
        nonlocal left, struck
        if line == wanted and not struck:
            struck = left == 0
            left -= 1
            if struck:
                raise error("interrupted")

    try:
        with _traced(files, strike):
            work()
    except error:
        pass
    return struck
