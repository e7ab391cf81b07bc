"""Causes: why a tree was failed, by which step, and whether another attempt is of use.

The ledger keeps a cause as one text, which it never looks into: the reason alone where there is nothing else
to say. Otherwise a NUL follows, "!" where no attempt is to follow, and the name of the step.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from acker.ledger.config import bounded_reason, check_reason

_END = "\0"
_FOR_GOOD = "!"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a tree was failed. step: the name of who failed it, "" where not known.

    retry: whether another attempt is of use. Who says no has failed the record for good.
    """

    reason: str = ""
    step: str = ""
    retry: bool = True

    def text(self) -> str:
        """The cause as text; the inverse of `parse`. The reason is cut to 1 KiB."""
        said = bounded_reason(self.reason)
        if self.retry and not self.step and _END not in said:
            return said
        return f"{said}{ending(retry=self.retry)}{self.step}"

    def encode(self) -> bytes:
        """The same as the ledger keeps it."""
        return self.text().encode("utf-8", "replace")

    @classmethod
    def parse(cls, text: str) -> "Cause":
        """The cause that `text` made a text of."""
        reason, end, rest = text.rpartition(_END)
        if not end:
            return cls(text)
        return cls(reason, rest.removeprefix(_FOR_GOOD), not rest.startswith(_FOR_GOOD))

    @classmethod
    def decode(cls, stored: bytes) -> "Cause":
        """The cause that the ledger has kept so."""
        return cls.parse(stored.decode("utf-8", "replace"))


def ending(*, retry: bool) -> str:
    """What follows a reason in a cause's text, before the name of the step."""
    return _END if retry else _END + _FOR_GOOD


def checked(reason: object, step: str = "", *, retry: bool = True) -> bytes:
    """A cause as the ledger keeps it. Raises ValidationError for a reason that is no str of at most 1 KiB."""
    return Cause(check_reason(reason).decode(), step, retry).encode()


def checked_text(text: str) -> bytes:
    """A cause's text as the ledger keeps it. Raises ValidationError for a reason of more than 1 KiB."""
    cause = Cause.parse(text)
    return checked(cause.reason, cause.step, retry=cause.retry)


def texts(reasons: Iterable[str | None], step: str) -> list[str]:
    """Texts of causes, with the name of a step in each that names none."""
    found = [text or "" for text in reasons]
    whole = {text: _by(step, text) for text in set(found)}
    return [whole[text] for text in found]


def _by(step: str, text: str) -> str:
    cause = Cause.parse(text)
    return replace(cause, step=cause.step or step).text()
