"""Scripts that held the store for long, each with its client, by the server's own list of slow commands.

While a script runs, the server answers nobody: after `busy-reply-threshold` (5 s) it says BUSY, and does not
say whose script it is. When the script has ended, the list names it.
"""

from dataclasses import dataclass
from typing import Annotated

from acker.errors import MissingRights
from acker.ledger.calls.core import Core
from acker.ledger.fields import Examples, Instant, Seconds
from acker.store import keys
from acker.store.operation import Operation, Reply, Request
from acker.store.records import passing_over
from acker.store.replies import seconds

WINDOW = 3_600.0
"""Seconds: a script that ended earlier is not named."""
LEAST = 1.0
"""Seconds: a shorter script is not slow. No script of acker takes more than 10 ms."""
MOST = 5
"""Most scripts that are named."""
_LOOKED = 128
_SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_WORDS, _LONGEST = 4, 80


@dataclass(frozen=True, slots=True)
class SlowScript:
    """A script that held a server of the store."""

    at: Annotated[Instant, "When it began, by the store's clock."]
    seconds: Annotated[Seconds, "How long it ran."]
    client: Annotated[str, Examples("10.0.0.7:51344"), "The address of its client."]
    name: Annotated[str, "That the client gave itself; empty without."]
    command: Annotated[str, "Its first words."]

    def text(self) -> str:
        """The script in a sentence."""
        who = f"{self.client} ({self.name})" if self.name else self.client
        return f"a script of client {who} held the store for {self.seconds:.1f} s: {self.command}"


def slow_scripts(core: Core) -> Operation[tuple[SlowScript, ...]]:
    """The latest scripts that held the server of a topology's configuration, the latest first.

    Empty where the user may not read the list (`SLOWLOG GET`). Changes nothing.
    """
    key = keys.config(core.config.name)
    try:
        instant, entries = yield [Request(key, ["TIME"]), Request(key, ["SLOWLOG", "GET", _LOOKED])]
    except MissingRights:
        return ()
    now = seconds(instant)
    scripts = (_parse(entry) for entry in entries)
    slow = [one for one in scripts if one is not None and one.seconds >= LEAST and now - one.at < WINDOW]
    return tuple(sorted(slow, key=lambda one: -one.at)[:MOST])


def _parse(entry: Reply) -> SlowScript | None:
    """A script of the list; None for another command."""
    with passing_over("the list of slow commands"):
        _, ended, micros, words, client, name, *_ = entry
        command = [_text(word) for word in words[:_WORDS]]
        if command[0].upper() not in _SCRIPTS:
            return None
        took = int(micros) / 1e6
        more = " …" if len(words) > _WORDS else ""
        return SlowScript(int(ended) - took, took, _text(client), _text(name), " ".join(command) + more)
    return None


def _text(word: bytes) -> str:
    text = word.decode("utf-8", "replace")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
