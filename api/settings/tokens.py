"""Bearer tokens: only their hashes are kept, and they are compared in constant time."""

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, get_args

Scope: TypeAlias = Literal["read", "call", "operate"]
"""The rights of a token: to look; to call functions, and no more; everything."""

SHORTEST = 16
_HASH = "sha256:"
_HASHED = re.compile(rf"{_HASH}([0-9a-f]{{64}})\Z")
_NAMED = re.compile(r"([A-Za-z0-9._-]{1,64})=(.*)\Z", re.DOTALL)
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Token:
    """A token that is accepted: what it allows, its SHA-256, and its name, if it was given one."""

    scope: Scope
    digest: bytes
    name: str = ""

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
        """Tokens from `scope:token` or `scope:sha256:<hex>`, with `name=` before it or without.

        Raises ValueError, which repeats no token.
        """
        accepted: list[Token] = []
        for number, part in enumerate(text.replace(",", " ").split(), 1):
            named = _NAMED.match(part.partition(":")[0])
            name = named[1] if named else ""
            scope, _, token = (part.partition("=")[2] if named else part).partition(":")
            if scope not in get_args(Scope):
                raise ValueError(f"token {number}: expected scope:token with scope read, call or operate")
            hashed = _HASHED.match(token)
            if token.lower().startswith(_HASH) and not hashed:
                # As a plain token, the text of the hash would be the password.
                raise ValueError(
                    f"token {number}: expected 64 hexadecimal digits in lower case after {_HASH}"
                )
            if not hashed and len(token) < SHORTEST:
                raise ValueError(f"token {number}: expected at least {SHORTEST} characters")
            digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(token.encode()).digest()
            accepted.append(Token(scope, digest, name))  # type: ignore[arg-type]
        if len(accepted) > _MOST:
            raise ValueError(f"expected at most {_MOST} tokens, got {len(accepted)}")
        return cls(accepted)

    def hashed(self) -> str:
        """The same tokens as text that `parse` takes."""
        return " ".join(
            f"{token.name}={token.scope}:{_HASH}{token.digest.hex()}"
            if token.name
            else f"{token.scope}:{_HASH}{token.digest.hex()}"
            for token in self.accepted
        )

    def find(self, presented: str) -> Token | None:
        """The token presented, if it is accepted. Every one is compared, so that time tells nothing."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        match = None
        for token in self.accepted:
            if hmac.compare_digest(token.digest, digest):
                match = token if match is None or token.scope == "operate" else match
        return match
