"""Mechanisms of external streams: the model runs with all of them, and a mutant without one."""

from dataclasses import dataclass
from typing import NamedTuple


class Times(NamedTuple):
    """Times of external streams, in the unit of the model's clock.

    ttl: the time for which rows that are not emitted wait. margin: the difference of clocks at most.
    hold: life of an emitted segment. lost_after, downtime: times after which a segment counts as lost.
    """

    ttl: int = 100
    margin: int = 20
    hold: int = 3000
    lost_after: int = 100
    downtime: int = 700


@dataclass(frozen=True)
class Rules:
    """The mechanisms. Each default is the code as it is."""

    # A process
    bits_after: bool = True  # a row is acked after the function has made its rows
    offsets_last: bool = True  # offsets are committed after the flush
    announced_first: bool = True  # segments are announced before they are emitted
    emits_first: bool = True  # a flush emits before it sends bits
    tuples_last: bool = True  # a flush acks the tuples that it took over behind its emits
    guarded: bool = True  # a shard that has lost emits of a flush takes none of its bits
    unsent_bits: bool = True  # a flush sends the bits of rows that were not delivered
    unsent_rows: bool = True  # a row that was not delivered keeps its position
    own_shards: bool = True  # a bit goes to the shards of its row's anchors
    stamp_time: bool = True  # a row of an unknown segment is over when its stamp is old
    one_look: bool = True  # bits go by the look that the function's rows went by

    # A shard
    counts: str = "positions"  # positions, copies, or XOR of copies (Storm)
    cut: bool = True  # bits and fails that are of no row of the segment do not count
    masked: bool = True  # bits of rows without an anchor in the shard do not count
    early: bool = True  # bits before the vectors make a hash
    early_staged: bool = True  # bits wait in vectors that are not emitted
    own_vectors: bool = True  # a flush emits the vectors alone that it has staged
    fills: bool = True  # vectors fill a hash that bits have made
    staged_once: bool = True  # vectors that are staged already do not come again
    emit_looks: bool = True  # the script that emits looks at fails and bits that waited
    fails_first: bool = True  # fails are looked at before bits
    fails_wait: bool = True  # fails of rows that are not emitted wait
    fails_with_bits: bool = True  # a row's fail comes with its bit, by one script
    bits_note_wait: bool = True  # early bits note the time from which their flush's emits wait
    old_refused: bool = True  # a flush whose emits may be dropped sends no bits
    early_waits: bool = True  # emits wait for their track as long as bits
    room_voids: bool = True  # a fail without room to wait for its track makes the segment void
    void_fails: bool = True  # the trees of a void segment fail
    tombstone: bool = True  # an acked segment leaves its state
    tombstone_margin: bool = True  # for the margin of clocks, too
    late_refused: bool = True  # a segment that is too old is refused

    # A stream
    key_renewed: bool = True  # an emptied store has another key
    key_checked: bool = True  # a process with another key is refused
    received_raised: bool = True  # the progress of a subscription is only raised
    keeps_clocks: bool = True  # the clocks of open segments' trees stand still
    lost_runs: bool = True  # the clocks of lost segments run
    pass_ends: bool = True  # the pass ends what a process has left
    pass_closes: bool = True  # the pass takes entries out that all have acked
