"""Ends of queries: refused by acker, by the story, by Spark or the user's code, or by a fault of acker."""

import re
from typing import Any

from acker import errors
from acker.errors import AckerError, StoreError, StoreUnavailable, VersionMismatch
from harness.pipelines.verdict import BROKEN, PLANNED, REFUSED, SPARK, End

CRASH = "the story ends this at"
_TYPED = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, AckerError)}
_NOT_REFUSALS = {
    name
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, (StoreError, StoreUnavailable, VersionMismatch))
}
_MOST_CAUSES = 20
_FRAME = re.compile(r'^\s*File "([^"]+)", line \d+', re.MULTILINE)


def end_of(query: str, error: BaseException) -> End:
    """The end of a run that raised this error."""
    text = _whole(error)
    if CRASH in text:
        return End(query, PLANNED, text)
    if isinstance(error, AckerError):
        name = type(error).__name__
    else:
        names = [found for found in re.findall(r"acker\.errors\.(\w+)", text) if found in _TYPED]
        name = names[-1] if names else ""
    if name:
        return End(query, BROKEN if name in _NOT_REFUSALS else REFUSED, _short(name, text))
    frames = _FRAME.findall(text)
    broken = bool(frames) and "/acker/" in frames[-1] and "/harness/" not in frames[-1]
    return End(query, BROKEN if broken else SPARK, _line(text))


def _whole(error: BaseException) -> str:
    """The texts of an error and of its causes in the JVM: Spark shows the outermost."""
    said = [str(error)]
    cause: Any = getattr(error, "_origin", None)
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        reported = str(cause.getMessage() or cause)
        if reported not in said[-1]:
            said.append(reported)
        cause = cause.getCause()
    return "\n".join(said)


def _short(name: str, text: str) -> str:
    """The line that tells of an error of acker."""
    for line in reversed(text.splitlines()):
        if name in line:
            return line.strip()[:400]
    return f"{name}: {text.strip()[:400]}"


def _line(text: str) -> str:
    """The line that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"^(?:[\w.]*\.)?\w*(?:Error|Exception)\b|^\[", line)]
    return (said or lines or [""])[-1 if said else 0][:400]
