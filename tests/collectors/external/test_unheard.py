"""Rows for nobody that were not delivered: their records fail, and are never acked."""

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest

from acker import Tuple
from acker.errors import StoreUnavailable
from acker.ledger.calls.core import Core
from acker.store.operation import Operation
from acker.streams.staging.external import commit
from acker.streams.staging.external.announcing import Announcements
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import Message, source


def test_a_row_for_nobody_that_was_not_delivered_fails_its_record_before_its_input_is_acked(
    make: Make,
) -> None:
    made, step = make(ackers=2), make(ackers=2)
    items = step.incoming("items", subscription="split")
    headers = source(made, 3)
    made.flush()
    out = step.outgoing("words")  # no subscription: nobody owes anything for its rows
    rows = items.extract_many(headers)
    sent = [out.inject([], row) for row in rows]
    items.ack(rows)
    out.delivered("no broker", Message(sent[1]))
    out.withdraw(sent[2])
    step.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 2}


@pytest.mark.parametrize("parsed", [True, False])
def test_a_row_for_nobody_whose_fail_has_no_room_leaves_its_input_unacked(
    make: Make, monkeypatch: pytest.MonkeyPatch, parsed: bool
) -> None:
    """Its tree is not tracked yet, and there is room again when the ack of the input comes."""
    made, step, fail_rows = make(), make(), commit.fail_rows

    def without_room(core: Core, fails: Sequence[tuple[int, bytes]]) -> Operation[bool]:
        with monkeypatch.context() as patch:
            patch.setattr(core, "config", replace(core.config, waiting_bytes=0))
            return (yield from fail_rows(core, fails))

    monkeypatch.setattr(commit, "fail_rows", without_room)
    items, out = step.incoming("items", subscription="split"), step.outgoing("words")
    if parsed:
        [emitted] = made.spout("s").emit("m")
        headers = out.inject([], Tuple.parse(str(emitted)))
    else:
        row = items.extract(source(made, 1)[0])
        headers = out.inject([], row)
        items.ack(row)
    out.delivered("no broker", Message(headers))
    step.flush()
    made.flush()
    assert made.counters()["acked"] == 0


def test_a_row_for_nobody_fails_its_record_where_a_flush_was_cut_before_its_report(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    out, [headers] = made.outgoing("items"), source(made, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Announcements, "requests", Mock(side_effect=StoreUnavailable("it was cut")))
        with pytest.raises(StoreUnavailable):
            made.flush()
    out.delivered("no broker", Message(headers))
    made.flush()
    assert {name: made.counters()[name] for name in ("failed", "acked")} == {"failed": 1, "acked": 0}
