"""The record of a writer's commits: the contents of the last ones, and how far each has come.

A commit is in one of these states (lua/streams/commits/begin_commit.lua, advance_commit.lua):

    prepared ATTEMPT [EXECUTOR N]  it may still be dropped; the attempt tells it from a later one
    committed EXECUTOR N           all that it needs is kept, and it takes effect
    tracked EXECUTOR N             its roots are tracked
    complete                       nothing is left to do

EXECUTOR names the executor, N counts its chunks (acker/streams/commits/run.py). So no two states
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
"""The prefix of writers that several processes share. They ask for the number of their next commit."""
_KEPT_SHARED = 16
"""Finished commits that are remembered of such a writer, so that a process that was stopped meanwhile can
learn the end of its own.
"""
Phase: TypeAlias = Literal["", "prepared", "committed", "tracked", "complete"]
PHASES = ("", "prepared", "committed", "tracked", "complete")
_SHARDS = "ACKER SHARDS "
_log = logging.getLogger(__name__)
OLD_CHECKPOINT = (
    "the checkpoint is older than the commits in the store. Start with a new checkpoint, and give the "
    "unacked segments of the reader back to its subscription"
)


def phase_of(state: str) -> Phase:
    """The first word of a state; "" where nothing is stored. UnreadableRecord for any other."""
    phase = state.partition(" ")[0]
    if phase not in PHASES:
        raise UnreadableRecord(f"expected prepared, committed, tracked or complete, got {state!r:.80}")
    return cast(Phase, phase)


def attempt_of(state: str) -> str:
    """The word that tells a stored commit from one that is stored again."""
    return (*state.split(" "), "")[1]


def next_state(state: str, phase: Phase, executor: str, count: int) -> str:
    """The state in which the next chunk of the executor leaves a commit."""
    kept = f"{phase} {attempt_of(state)}" if phase == "prepared" else phase
    return f"{kept} {executor} {count}"


def begin_request(core: Core, writer: str, number: int, text: str, attempt: str = "") -> Request:
    """The request that stores a commit, or reads the stored one. An empty text only reads."""
    kept = _KEPT_SHARED if writer.startswith(SHARED) else 1
    attempt = attempt or segments.new_hex_id()
    return scripts.begin_commit(core.config, writer, number, text, RECORD_TTL, attempt, kept)


def parse_state(core: Core, writer: str, number: int, reply: Reply) -> tuple[str, str]:
    """The state and the text in a reply to `begin_request`.

    Raises CommitOrderError and UnreadableRecord; TopologyConfigError if the topology was made anew since.
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
    core: Core, writer: str, number: int, text: str, also: Sequence[Request] = ()
) -> Operation[tuple[str, str]]:
    """The state and the text of a commit. The text `text` is stored if there is none.

    also: requests that go along. Raises the errors of `parse_state`.
    """
    reply, *_ = yield [begin_request(core, writer, number, text), *also]
    return parse_state(core, writer, number, reply)


def drop(core: Core, writer: str, number: int, state: str) -> Operation[bool]:
    """Drops a commit that is only prepared; False if it is in another state."""
    [reply] = yield [scripts.advance_commit(core.config, writer, number, state, "")]
    return bool(reply)


def is_stored(core: Core, writer: str, number: int) -> Operation[bool]:
    """Return True if a commit of the writer and number is stored."""
    state, _ = yield from begin(core, writer, number, "")
    return bool(state)


def is_done(core: Core, writer: str, number: int) -> Operation[bool]:
    """Return True if a commit of a writer is complete, and the store still has its record."""
    [state] = yield [command("HGET", keys.commits(core.config.name, writer), f"{number}:state")]
    return bool(state == b"complete")


# Named runs: a committed run commits nothing again, and a later run of its name is warned. A driver that died
# in its commit and runs again finishes that commit silently. A run that comes after the end of the commit may
# have other rows, which are in no stream: the error names the earlier run and its time.


@dataclass(frozen=True, slots=True)
class Committed(Record, label="a run that is committed"):
    """A run that is committed.

    Attributes:
        by: The run's name for its committer, or "".
        at: The time of the commit, in Unix seconds.
        rows: The number of emitted rows.
    """

    by: str
    at: float
    rows: int

    def text(self) -> str:
        """The committer, the time and the rows as text for people."""
        if not self.at:
            return "committed by a run that died before it noted its time and its rows"
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at))
        return f"committed at {when}{f' by {self.by}' if self.by else ''}, with {self.rows:,} rows emitted"


def tell_run(run: str, before: Committed, rows: int, kept: bool = False) -> None:
    """Logs that a run was committed before.

    Raises RunCommitted if that had another number of rows than this run. kept: the input of this run is not
    lost with it, so the fault is only logged.
    """
    said = f"{run} was {before.text()}: nothing of this run is written. Give other rows a run of another name"
    if rows != before.rows and before.at and not kept:
        raise RunCommitted(f"{said}; this one has {rows:,} rows")
    _log.warning("%s", said)


def find_run(core: Core, writer: str) -> Operation[Committed | None]:
    """The note of a committed run; None if its commit is not done."""
    [(state, by)] = yield [command("HMGET", keys.commits(core.config.name, writer), "0:state", "by")]
    if state != b"complete":
        return None
    return readable(Committed.load, by, "a commit") or Committed("", 0.0, 0)


def note_run(core: Core, writer: str, by: str, rows: int) -> Operation[None]:
    """Notes the committer of a run beside its commit."""
    key = keys.commits(core.config.name, writer)
    [(seconds, _)] = yield [Request(key, ["TIME"])]
    what = Committed(by.encode("utf-8", "replace").decode()[:200], float(seconds), rows)
    yield [command("HSET", key, "by", what.dump())]
