"""Reasons without the parts that differ from record to record: the causes by which failures are grouped."""

import functools
import re

_MASK = "…"
_VARIES = re.compile(
    r"(?<!\w)(?:'[^']*'|\"[^\"]*\"|`[^`]*`)(?!\w)"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b0x[0-9a-fA-F]+\b|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"
    r"|\d+(?:[.,:]\d+)*"
)
_THREE_DIGITS = re.compile(r"[1-5][0-9]{2}\Z")
_OF_STATUS = re.compile(
    r"(?:http(?:/[0-9.]+)?|status|code|error|answered|returned|responded|response)\W{0,3}\Z", re.IGNORECASE
)
_BEFORE = 20


@functools.lru_cache(maxsize=4096)
def cause(reason: str) -> str:
    """A reason without the parts that differ from record to record, so that equal failures have one cause.

    Quoted text, long hexadecimal names and numbers become "…". A number that is a status of HTTP stays: 100
    to 599 after a word such as HTTP, status, code, error or answered.
    """
    return _VARIES.sub(_masked, reason)


def _masked(match: re.Match[str]) -> str:
    if _THREE_DIGITS.match(match[0]):
        before = match.string[max(0, match.start() - _BEFORE) : match.start()]
        if _OF_STATUS.search(before):
            return match[0]
    return _MASK
