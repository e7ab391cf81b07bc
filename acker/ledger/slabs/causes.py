"""Causes of failed trees: the reason, the step, and a mark of another attempt.

The ledger keeps a cause as one text and never parses it: the reason alone if there is nothing else. Otherwise
a NUL follows, "!" if no attempt is to follow, the name of the step, and after a space its batch.

Terms: a tree is all that comes of one record.
"""

import functools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from acker.errors import FailedException, class_name, is_interrupt, text_of
from acker.ledger.fields import HIDDEN, Batch
from acker.ledger.settings.config import bounded_reason, check_reason

REASON = "Of a failure: its free text. Of an expired tree: its last known place."
STEP = "The bolt that failed it, or had its rows when it expired; empty if that is unknown."
BATCH = "The batch of its query; null if that is unknown."
_END = "\0"
_FOR_GOOD = "!"


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a failed tree.

    retry: True if another attempt is of use. If not, the record has failed for good.
    """

    reason: Annotated[str, REASON] = ""
    step: Annotated[str, STEP] = ""
    retry: Annotated[bool, HIDDEN] = True
    batch: Annotated[Batch, BATCH] = -1

    def text(self) -> str:
        """The cause as text; the inverse of `parse`. The reason is cut to 1 KiB."""
        said = bounded_reason(self.reason)
        if self.retry and not self.step and _END not in said:
            return said
        return f"{said}{ending(retry=self.retry)}{text_by(self.step, self.batch)}"

    def encode(self) -> bytes:
        """The cause as the ledger keeps it."""
        return self.text().encode("utf-8", "replace")

    @classmethod
    def parse(cls, text: str) -> "Cause":
        """The inverse of `text`."""
        if _END not in text:
            return cls(text)
        reason, _, rest = text.rpartition(_END)
        step, batch = parse_by(rest.removeprefix(_FOR_GOOD))
        return cls(reason, step, not rest.startswith(_FOR_GOOD), batch)

    @classmethod
    def decode(cls, stored: bytes) -> "Cause":
        """The inverse of `encode`."""
        return cls.parse(stored.decode("utf-8", "replace"))


def said_by(error: BaseException) -> str:
    """The reason for an exception: its type and text, or the text alone of a FailedException."""
    text, kind = text_of(error), class_name(error)
    if issubclass(type(error), FailedException):  # an object's `__class__` may raise
        return text or "failed"
    return f"{kind}: {text}" if text else kind


def log_error(log: logging.Logger, error: BaseException | None, message: str, *args: object) -> None:
    """Logs an error of user code, with its trace if there is one.

    Handlers of logs, and attributes that a trace shows, are user code, too: their errors are dropped, because
    the caller still has to handle the first error.
    """
    try:
        log.warning(message, *args, exc_info=error)
    except BaseException as another:
        if is_interrupt(another):
            raise


def text_by(step: str, batch: int) -> str:
    """A step, and its batch if it is known, as text."""
    return f"{step} {batch}" if step and batch >= 0 else step


@functools.lru_cache(maxsize=256)
def parse_by(text: str) -> tuple[str, int]:
    """The inverse of `text_by`; batch -1 if there is none, or if it is no 64-bit number."""
    step, _, batch = text.partition(" ")
    number = int(batch) if batch.isascii() and batch.isdigit() and len(batch) < 20 else -1
    return step, number if number < 1 << 63 else -1


def ending(*, retry: bool) -> str:
    """The text between a reason and the name of the step, in a cause's text."""
    return _END if retry else _END + _FOR_GOOD


def checked(reason: object, step: str = "", *, retry: bool = True) -> bytes:
    """A cause as the ledger keeps it. Raises ValidationError if the reason is no str of at most 1 KiB."""
    return Cause(check_reason(reason).decode(), step, retry).encode()


def checked_text(text: str) -> bytes:
    """A cause's text as the ledger keeps it. Raises ValidationError for a reason of more than 1 KiB."""
    cause = Cause.parse(text)
    return replace(cause, reason=check_reason(cause.reason).decode()).encode()


def texts(reasons: Iterable[str | None], step: str, batch: int = -1) -> list[str]:
    """Texts of causes, completed with the name of a step and its batch if a text names none."""
    given, by = [text or "" for text in reasons], text_by(step, batch)
    complete = {text: _named(text, by) for text in set(given)}
    return [complete[text] for text in given]


def _named(text: str, by: str) -> str:
    """A cause's text with its step and batch: the same as by `Cause`, in a fourth of the time."""
    reason, end, rest = text.rpartition(_END)
    if end and parse_by(rest.removeprefix(_FOR_GOOD))[0]:
        return text
    said = bounded_reason(reason if end else text)
    for_good = _FOR_GOOD if rest.startswith(_FOR_GOOD) and end else ""
    return f"{said}{_END}{for_good}{by}" if by or for_good or _END in said else said
