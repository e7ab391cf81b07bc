"""Bearer tokens: only their hashes are kept, and they are compared in constant time."""

import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Self, TypeAlias, get_args

Scope: TypeAlias = Literal["read", "call", "operate"]
"""The rights of a token: to look; to call functions, and no more; to look and to change."""

SHORTEST = 16
_ROWS = "rows"
_HASH = "sha256:"
_HASHED = re.compile(rf"{_HASH}([0-9a-f]{{64}})\Z")
_TOKEN = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]{1,64})=)?(?P<scopes>[a-z+]+?)"
    r"(?:\+until=(?P<until>[0-9-]*(?:T[0-9:]*Z)?[^:]*))?"
    r":(?P<token>.*)\Z",
    re.DOTALL,
)
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z)?\Z")
_MOST, _LONGEST = 1_000, 1_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token that is accepted.

    Attributes:
        scope: What it allows.
        rows: True if it may see the rows of dead letters, too.
        digest: Its SHA-256.
        name: Its name, or "".
        until: Unix seconds by the service's clock from which on it is refused; infinity if it has no end.
    """

    scope: Scope
    rows: bool
    digest: bytes
    name: str
    until: float

    @property
    def client(self) -> str:
        """A name for logs and limits, which tells nothing of the token."""
        return self.name or self.digest.hex()[:8]


class Tokens:
    """The tokens that are accepted. Tokens are random and long, so a plain hash hides them well."""

    def __init__(self, accepted: list[Token]) -> None:
        self.accepted = tuple(accepted)

    def __bool__(self) -> bool:
        return bool(self.accepted)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Tokens from `[name=]scope[+rows][+until=END]:token`, or `sha256:<hex>` for the token.

        Raises ValueError, which repeats no token.
        """
        parts = text.replace(",", " ").split()
        accepted = [_parse(number, part) for number, part in enumerate(parts, 1)]
        if len(accepted) > _MOST:
            raise ValueError(f"expected at most {_MOST} tokens, got {len(accepted)}")
        return cls(accepted)

    def hashed(self) -> str:
        """The same tokens as text that `parse` takes."""
        return " ".join(map(_hashed, self.accepted))

    def find(self, presented: str) -> Token | None:
        """The token presented, if it is known; of several entries the one with the most rights.

        Every entry is compared, so that time tells nothing. A token whose time is over is found only where no
        other entry is.
        """
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        now = time.time()
        matches = [token for token in self.accepted if hmac.compare_digest(token.digest, digest)]
        return max(
            matches, key=lambda token: (now < token.until, token.scope == "operate", token.rows), default=None
        )


def _parse(number: int, part: str) -> Token:
    if len(part) > _LONGEST:
        raise ValueError(f"token {number}: expected at most {_LONGEST:,} characters, got {len(part):,}")
    match = _TOKEN.match(part)
    scope, *more = match["scopes"].split("+") if match else [""]
    if match is None or scope not in get_args(Scope):
        raise ValueError(f"token {number}: expected scope:token with scope read, call or operate")
    if more not in ([], [_ROWS]) or (more and scope == "call"):
        raise ValueError(f"token {number}: beside {scope} expected {_ROWS}, with read or operate, or nothing")
    token = match["token"]
    hashed = _HASHED.match(token)
    if token.lower().startswith(_HASH) and not hashed:
        # As a plain token, the text of the hash would be the password.
        raise ValueError(f"token {number}: expected 64 hexadecimal digits in lower case after {_HASH}")
    if not hashed and len(token) < SHORTEST:
        raise ValueError(f"token {number}: expected at least {SHORTEST} characters")
    digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(token.encode()).digest()
    until = float("inf") if match["until"] is None else _end(number, match["until"])
    return Token(scope, bool(more), digest, match["name"] or "", until)  # type: ignore[arg-type]


def _end(number: int, text: str) -> float:
    """The end that a token has, as Unix seconds; a date's end is the end of its day."""
    try:
        if not _INSTANT.match(text):
            raise ValueError(text)
        end = datetime.fromisoformat(text)
        end = end if end.tzinfo else end.replace(tzinfo=UTC) + timedelta(days=1)
        return end.timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"token {number}: until: expected a date as 2026-12-31, or a time as 2026-12-31T18:00Z"
        ) from None


def _hashed(token: Token) -> str:
    name = f"{token.name}=" if token.name else ""
    rows = f"+{_ROWS}" if token.rows else ""
    end = ""
    if token.until != float("inf"):
        end = f"+until={datetime.fromtimestamp(token.until, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{name}{token.scope}{rows}{end}:{_HASH}{token.digest.hex()}"
