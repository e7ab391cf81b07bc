"""Which records "count" fails on purpose. `count.py` tells Spark the same rule as an expression."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

FLAKY_WORDS = ("yield", "thread", "deque")
"""Words that fail their record at its first attempt: some 0.4 % of the standard library's lines."""
POISON_EVERY = 2000
"""One record of so many fails at every attempt, by default."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Words and records that fail.

    flaky: words that make a record fail at its first attempt. poison_every: one of so many records always
    fails, chosen by the CRC-32 of its message id; 0: none.
    """

    flaky: tuple[str, ...] = FLAKY_WORDS
    poison_every: int = POISON_EVERY

    def poisoned(self, message_id: str) -> bool:
        """Whether a record always fails (when it has a word: one without never comes to "count")."""
        return bool(self.poison_every) and zlib.crc32(message_id.encode()) % self.poison_every == 0

    def failures(self, message_id: str, words: Iterable[str], attempts: int) -> int:
        """How often a record with these words fails, of `attempts` attempts at most."""
        found = set(words)
        if found and self.poisoned(message_id):
            return attempts
        return min(1, attempts) if found.intersection(self.flaky) else 0

    def arguments(self) -> list[str]:
        """The faults as arguments of a process; `count.py` reads them."""
        return ["--flaky", ",".join(self.flaky), "--poison-every", str(self.poison_every)]

    @classmethod
    def parse(cls, flaky: str, poison_every: int) -> "Faults":
        """The inverse of `arguments`."""
        return cls(tuple(word.strip().lower() for word in flaky.split(",") if word.strip()), poison_every)
