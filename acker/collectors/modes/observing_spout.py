"""A spout whose records are only recorded, and the choice between it and a guarded spout."""

from collections.abc import Iterator, Sequence

import numpy as np

from acker.collectors.modes.observing import ObservingOutbox, Recorder
from acker.collectors.outcome import Outcome, OutcomeGroup
from acker.collectors.session import Session
from acker.collectors.spout import Spout, checked_records
from acker.collectors.tuples import Tuple, check_targets
from acker.ledger import ids
from acker.ledger.ids import Ids, IdsLike
from acker.ledger.settings import config
from acker.ledger.settings.config import OBSERVED
from acker.ledger.settings.settings import check_number


def open_spout(
    session: Session,
    name: str,
    max_spout_pending: int | None,
    *,
    observe: bool,
    grouped: bool = False,
    place: int = 1,
) -> Spout:
    """A spout that observes if it or its topology is to; see `acker.Topology.spout`.

    place: of a member of a spout (`acker.ledger.outcomes.members`).
    """
    if (observe or session.observes) and not session.off:
        return ObservingSpout(session.observer(), name, max_spout_pending)
    spout = Spout(session, name, max_spout_pending, grouped=grouped, place=place)
    if session.config.ackers:
        spout.register()
    return spout


class ObservingSpout(Spout):
    """A spout whose records are only recorded. Made by `Topology.spout` with `observe=True`, for any thread.

    Its name in the store ends with `.observed`. An emit neither waits nor fails for the store's sake. The
    program gets no outcomes: it has nothing to wait for, and nothing to confirm. People see the outcomes.
    """

    observes = True

    def __init__(self, topology: Session, name: str, max_spout_pending: int | None = None) -> None:
        outbox = topology.outbox
        assert isinstance(outbox, ObservingOutbox)
        if max_spout_pending is not None:
            check_number(max_spout_pending, "max_spout_pending", 1, 10**9, int)
        self.topology, self.max_spout_pending, self._given = topology, None, name
        config.check_spout(name)
        self.name = config.check_name(f"{name}{OBSERVED}", f"spout, with {OBSERVED}")
        self._observer, self._recorder = outbox, Recorder(outbox, self.name)
        outbox.register_fork(self)

    def forget(self) -> None:
        """Drops its state in memory, which belongs to the parent in a forked child."""
        self._recorder.forget()

    def __reduce__(self) -> tuple[type, tuple[Session, str, int | None]]:
        return type(self), (self.topology, self._given, None)

    @property
    def pending(self) -> int:
        """0: no outcome is awaited."""
        return 0

    def emit(
        self,
        message_id: bytes | str | None,
        targets: int = 1,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> list[Tuple]:
        """Emits a record: one tuple for each target, untracked where there is no room to record it.

        Args:
            message_id: See `Spout.emit`.
            targets: See `Spout.emit`.
            wait: Without effect.
            timeout: Without effect.

        Raises:
            ValidationError: An argument is not valid.
        """
        check_targets(targets)
        self._observer.make_room()
        edges: list[dict[int, int]] = [{} for _ in range(targets)]
        if message_id is not None:
            encoded = config.check_message_id(message_id)
            with self._observer.lock:
                if self._observer.tracks and self._observer.has_room(1):
                    anchor, value = self._recorder.next_anchor(), 0
                    for tuple_edges in edges:
                        tuple_edges[anchor] = ids.new_id()
                        value ^= tuple_edges[anchor]
                    self._recorder.add(encoded, value)
                    self._observer.count_emitted(targets)
        return [Tuple.from_edges(self.topology.owner, tuple_edges) for tuple_edges in edges]

    def emit_many(
        self,
        message_ids: Sequence[bytes | str],
        values: IdsLike | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> tuple[Ids, Ids]:
        """Emits many records, one tuple each; see `Spout.emit_many`. Anchors are 0 where nothing is recorded.

        Args:
            message_ids: A message id for each record.
            values: Tuple ids that are not zero; None makes random ids.
            wait: Without effect.
            timeout: Without effect.

        Raises:
            ValidationError: An argument is not valid.
        """
        encoded, tuple_ids = checked_records(message_ids, values)
        count = len(encoded)
        self._observer.make_room()
        with self._observer.lock:
            if not count or not self._observer.tracks or not self._observer.has_room(count):
                return np.zeros(count, np.int64), tuple_ids
            slabs = self._recorder.new_slabs(encoded, tuple_ids)
            anchors = np.concatenate([slab.new().anchors for slab in slabs])
            for slab in slabs:
                self._observer.buffer.tracks[slab.name] = (self._recorder, slab)
            self._observer.adding(count)
        return anchors, tuple_ids

    def outcomes(self, timeout: float | None = None) -> Iterator[Outcome]:
        """Returns an iterator without outcomes, at once.

        Args:
            timeout: Without effect.
        """
        return iter(())

    def outcome_groups(self, timeout: float | None = None) -> Iterator[OutcomeGroup]:
        """Returns an iterator without outcomes, at once."""
        return iter(())

    def confirm_group(self, group: OutcomeGroup) -> None:
        """Does nothing, like `confirm`."""

    def confirm(self, outcome: Outcome) -> None:
        """Does nothing: the ticks confirm the outcomes of observing spouts.

        Args:
            outcome: An outcome.
        """

    def register(self) -> None:
        """Does nothing: the topology's thread registers the spout before its first track."""
