"""The record of a writer's commits: what the last ones do, and how far they are.

See lua/streams/commits/begin_commit.lua.
"""

from collections.abc import Sequence

import redis

from acker.errors import CommitOrderError, TopologyConfigError, UnreadableRecord
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.records import reading
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
STORED = "stored"
"""How the state of a commit begins that is not final yet."""
_SHARDS = "ACKER SHARDS "
OLD_CHECKPOINT = (
    "the checkpoint is older than what the store knows. Start with a new checkpoint, and give what the "
    "reader has not acked back to its subscription"
)


def kept(writer: str) -> int:
    """How many commits of a writer are known when they are done."""
    return _KEPT_SHARED if writer.startswith(SHARED) else 1


def begin(
    core: Core, writer: str, number: int, own: str, also: Sequence[Request] = ()
) -> Operation[tuple[str, str]]:
    """The state of a commit, and what it does; `own` is stored where there is none.

    also: requests that go with this one. Raises CommitOrderError and UnreadableRecord; TopologyConfigError
    where the topology was made anew since.
    """
    known_for = RECORD_TTL, segments.new_token(), kept(writer)
    reply, *_ = yield [scripts.begin_commit(core.config, writer, number, own, *known_for), *also]
    if isinstance(reply, redis.ResponseError) and str(reply).startswith(_SHARDS):
        shards = int(str(reply).removeprefix(_SHARDS))
        raise TopologyConfigError(core.config.name, {"ackers": (shards, core.config.ackers)})
    if isinstance(reply, redis.ResponseError):
        raise CommitOrderError(f"{str(reply).removeprefix('ACKER ')}: {OLD_CHECKPOINT}")
    with reading(f"commit {number} of writer {writer!r}"):
        state, what = reply[0].decode(), reply[1].decode()
    if state not in ("", "held", "tracked", "done") and not state.startswith(STORED):
        raise UnreadableRecord(
            f"commit {number} of {writer!r}: expected stored, held, tracked or done, got {state!r:.80}"
        )
    return state, what


def attempt_of(state: str) -> str:
    """What tells a stored commit from one that is stored again."""
    return state.removeprefix(STORED).strip()


def advance(
    core: Core, writer: str, number: int, text: str, start: str, to: str, trail: str = ""
) -> Operation[bool]:
    """Moves a commit on, where it is in a state, and has a trail (`acker.streams.commits.trail`)."""
    [reply] = yield [scripts.advance_commit(core.config, writer, number, text, start, to, "", trail)]
    return bool(reply)


def known(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of that writer and number is stored."""
    state, _ = yield from begin(core, writer, number, "")
    return bool(state)


def is_done(core: Core, writer: str, number: int) -> Operation[bool]:
    """Whether a commit of a writer is done, and the store knows of it."""
    [state] = yield [command("HGET", keys.commits(core.config.name, writer), f"{number}:state")]
    return bool(state == b"done")
