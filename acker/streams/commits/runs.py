"""Named runs: a run that was committed commits nothing again, and whoever comes with its name hears of that.

A driver that died in its commit and runs again finishes that commit, without a word. One that comes when the
commit was done before may have other rows, which are in no stream: the error says who has had the name, and
when.
"""

import logging
import time
from dataclasses import dataclass

from acker.errors import RunCommitted
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import Record, readable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed(Record, what="a run that is committed"):
    """A run that is committed. by: who did, or ""; at: when, Unix seconds; rows: that it emitted."""

    by: str
    at: float
    rows: int

    def text(self) -> str:
        """Who it was, and when, for people."""
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at))
        return f"committed at {when}{f' by {self.by}' if self.by else ''}, with {self.rows:,} rows emitted"


def tell(who: str, before: Committed, rows: int, kept: bool = False) -> None:
    """Logs that a run was committed before; RunCommitted where it had other rows than the `rows` of this one.

    kept: what this one has read is not lost with it, so it is only logged.
    """
    said = f"{who} was {before.text()}: nothing of this run is written. Give other rows a run of another name"
    if rows != before.rows and before.at and not kept:
        raise RunCommitted(f"{said}; this one has {rows:,} rows")
    _log.warning("%s", said)


def find(core: Core, writer: str) -> Operation[Committed | None]:
    """Who has committed a run, as far as that is noted; None also where its commit is not done."""
    [(state, by)] = yield [command("HMGET", keys.commits(core.config.name, writer), "0:state", "by")]
    if state != b"done":
        return None
    return readable(Committed.load, by, "a commit") or Committed("", 0.0, 0)


def note(core: Core, writer: str, by: str, rows: int) -> Operation[None]:
    """Notes who has committed a run, beside its commit."""
    key = keys.commits(core.config.name, writer)
    [(seconds, _)] = yield [Request(key, ["TIME"])]
    what = Committed(by.encode("utf-8", "replace").decode()[:200], float(seconds), rows)
    yield [command("HSET", key, "by", what.dump())]
