"""The record of a writer's commits: the contents of the last ones, and how far each has come.

A commit is in one of these states (lua/streams/commits/begin_commit.lua, advance_commit.lua):

    stored ATTEMPT [TOKEN N]   it may still be dropped; the attempt tells it from what is stored after that
    held TOKEN N               all that it needs is kept, and it is final: it takes effect
    tracked TOKEN N            its roots are tracked
    done                       nothing is left to do

TOKEN names whoever carries it out, N counts his chunks (acker/streams/commits/run.py). So no two states
are the same, and of one server the state tells all that was done for the commit: each chunk moves it with
its first script. A store that was set back is in another state than the next chunk begins in.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import redis

from acker.errors import CommitOrderError, RunCommitted, TopologyConfigError, UnreadableRecord
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Reply, Request, command
from acker.store.records import Record, readable, reading
from acker.streams.commits import scripts
from acker.streams.log import segments
from acker.streams.log.subscriptions import HOLD_TTL

RECORD_TTL = HOLD_TTL - 86400
"""Seconds for which a writer's last commits are remembered."""
SHARED = "spout."
"""How writers begin that several processes share: they ask for the number of their next commit."""
_KEPT_SHARED = 16
"""Commits of such a writer that are known when they are done: who was stopped while others went on learns how
its own ended."""
Phase: TypeAlias = Literal["", "stored", "held", "tracked", "done"]
PHASES = ("", "stored", "held", "tracked", "done")
_SHARDS = "ACKER SHARDS "
_log = logging.getLogger(__name__)
OLD_CHECKPOINT = (
    "the checkpoint is older than what the store knows. Start with a new checkpoint, and give what the "
    "reader has not acked back to its subscription"
)


def phase_of(state: str) -> Phase:
    """The first word of a state; "" where nothing is stored. UnreadableRecord for any other."""
    phase = state.partition(" ")[0]
    if phase not in PHASES:
        raise UnreadableRecord(f"expected stored, held, tracked or done, got {state!r:.80}")
    return cast(Phase, phase)


def attempt_of(state: str) -> str:
    """The word that tells a stored commit from one that is stored again."""
    return (*state.split(" "), "")[1]


def moved(state: str, phase: Phase, token: str, count: int) -> str:
    """The state in which the next chunk of whoever has that token leaves a commit."""
    kept = f"{phase} {attempt_of(state)}" if phase == "stored" else phase
    return f"{kept} {token} {count}"


def beginning(core: Core, writer: str, number: int, own: str, attempt: str = "") -> Request:
    """The request that stores a commit, or reads what is stored. own: its text; "" only reads."""
    kept = _KEPT_SHARED if writer.startswith(SHARED) else 1
    attempt = attempt or segments.new_token()
    return scripts.begin_commit(core.config, writer, number, own, RECORD_TTL, attempt, kept)


def begun(core: Core, writer: str, number: int, reply: Reply) -> tuple[str, str]:
    """The state and the text that `beginning` was answered with.

    Raises CommitOrderError and UnreadableRecord; TopologyConfigError where the topology was made anew since.
    """
    if isinstance(reply, redis.ResponseError) and str(reply).startswith(_SHARDS):
        shards = int(str(reply).removeprefix(_SHARDS))
        raise TopologyConfigError(core.config.name, {"ackers": (shards, core.config.ackers)})
    if isinstance(reply, redis.ResponseError):
        raise CommitOrderError(f"{str(reply).removeprefix('ACKER ')}: {OLD_CHECKPOINT}")
    with reading(f"commit {number} of writer {writer!r}"):
        state, text = reply[0].decode(), reply[1].decode()
        phase_of(state)
    return state, text


def begin(
    core: Core, writer: str, number: int, own: str, also: Sequence[Request] = ()
) -> Operation[tuple[str, str]]:
    """The state of a commit, and its text; `own` is stored where there is none.

    also: requests that go with this one. Raises what `begun` does.
    """
    reply, *_ = yield [beginning(core, writer, number, own), *also]
    return begun(core, writer, number, reply)


def drop(core: Core, writer: str, number: int, state: str) -> Operation[bool]:
    """Drops a commit that is only stored; False where it is in another state."""
    [reply] = yield [scripts.advance_commit(core.config, writer, number, state, "")]
    return bool(reply)


def known(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of that writer and number is stored."""
    state, _ = yield from begin(core, writer, number, "")
    return bool(state)


def is_done(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of a writer is done, and the store knows of it."""
    [state] = yield [command("HGET", keys.commits(core.config.name, writer), f"{number}:state")]
    return bool(state == b"done")


# Named runs: one that was committed commits nothing again, and whoever comes with its name hears of that. A
# driver
# that died in its commit and runs again finishes that commit, without a word. One that comes when the commit
# was
# done before may have other rows, which are in no stream: the error says who has had the name, and when.


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


def tell_run(who: str, before: Committed, rows: int, kept: bool = False) -> None:
    """Logs that a run was committed before; RunCommitted where it had other rows than the `rows` of this one.

    kept: what this one has read is not lost with it, so it is only logged.
    """
    said = f"{who} was {before.text()}: nothing of this run is written. Give other rows a run of another name"
    if rows != before.rows and before.at and not kept:
        raise RunCommitted(f"{said}; this one has {rows:,} rows")
    _log.warning("%s", said)


def find_run(core: Core, writer: str) -> Operation[Committed | None]:
    """Who has committed a run, as far as that is noted; None also where its commit is not done."""
    [(state, by)] = yield [command("HMGET", keys.commits(core.config.name, writer), "0:state", "by")]
    if state != b"done":
        return None
    return readable(Committed.load, by, "a commit") or Committed("", 0.0, 0)


def note_run(core: Core, writer: str, by: str, rows: int) -> Operation[None]:
    """Notes who has committed a run, beside its commit."""
    key = keys.commits(core.config.name, writer)
    [(seconds, _)] = yield [Request(key, ["TIME"])]
    what = Committed(by.encode("utf-8", "replace").decode()[:200], float(seconds), rows)
    yield [command("HSET", key, "by", what.dump())]
