"""Late copies of calls of a function begin none again, and after its removal they take and leave nothing."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acker.collectors.topology import Topology
from acker.drpc import answers, calls, scripts
from acker.drpc.calling import in_doubt
from acker.drpc.calling.in_doubt import Doubt
from acker.drpc.registry import Description
from acker.drpc.removal import retire
from acker.errors import AckerError, DRPCFailed
from acker.ledger.client import Ledger
from acker.ledger.settings.topologies import note_removal
from acker.store import function_keys, keys
from acker.store.operation import Request, command
from tests.helpers.builders.counting import counting
from tests.helpers.faults.late_copies import Copies, recorded
from tests.helpers.faults.set_backs import lasting
from tests.helpers.faults.simulator import names_of


def come(copies: Copies) -> None:
    """Sends all calls again, in their order, except waits, and what goes by another connection."""
    for store, request in copies.sent:
        if "XREAD" not in names_of(request):
            with suppress(AckerError):
                store.send([request])


def listed(topology: Topology) -> list[object]:
    """The names of a topology's streams and lines, and of all functions."""
    [streams, lines, functions] = topology.ledger.store.send(
        [
            command("SMEMBERS", keys.streams("t")),
            command("HKEYS", keys.lines("t")),
            command("HKEYS", keys.FUNCTIONS),
        ]
    )
    return [sorted(streams), sorted(lines), sorted(functions)]


def test_late_copies_of_a_removal_take_nothing_of_a_function_that_was_registered_anew(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = topology.ledger.store.url
    counting().register(topology)
    with recorded(monkeypatch, commands=True) as copies:
        retire(topology.ledger, counting().description("t"))
    with counting().work(topology):
        assert topology.drpc("count").execute(3) == 3
    names, before = listed(topology), lasting(url, "t")
    assert names[2] == [b"count"]
    come(copies)
    assert listed(topology) == names
    assert lasting(url, "t") == before


def forget_answers(topology: Topology) -> None:
    """Has the answers of the function end, as after their time to live."""
    store, own = topology.ledger.store, function_keys.Function("t", "count")
    [answered] = store.send([command("KEYS", own.answer("*"))])
    store.send([command("UNLINK", *answered)])


def test_late_copies_of_calls_make_nothing_of_a_function_that_was_removed(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = function_keys.Function("t", "count")
    with recorded(monkeypatch) as copies, counting().work(topology):
        assert topology.drpc("count").execute(3) == 3
    retire(topology.ledger, counting().description("t"), force=True)
    forget_answers(topology)
    names = listed(topology)
    come(copies)
    assert listed(topology) == names
    assert topology.ledger.store.send([command("EXISTS", own.calls, own.counted)]) == [0]
    [left] = topology.ledger.store.send([command("TTL", own.answers)])
    assert left > 0


def test_a_late_copy_begins_no_call_whose_answer_is_forgotten(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, store = function_keys.Function("t", "count"), topology.ledger.store
    with counting().work(topology):
        client = topology.drpc("count")
        with recorded(monkeypatch) as copies:
            assert client.execute(3) == 3
        forget_answers(topology)
        [begin] = [one for _, one in copies.sent if names_of(one) == ["begin_call"]]
        [[seconds, _]] = store.send([Request(own.calls, ["TIME"])])
        until = begin.args[-1]
        assert 0 < int(until) - 1000 * int(seconds) <= 1000 * (scripts.VALID + 1)
        late = replace(begin, args=[*begin.args[:-1], 1000 * int(seconds) - 1])
        assert [str(one) for one in store.send([late])] == ["ACKER LATE"]
        assert store.send([command("HLEN", own.calls)]) == [0]


def test_a_client_goes_on_where_what_its_function_kept_was_removed_meanwhile(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        assert client.execute(3) == 3
        topology.ledger.store.send(note_removal(function_keys.Function("t", "count").removals))
        assert client.execute(2) == 2


def test_a_late_answer_ends_no_call_that_was_begun_since(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key is called again, after its answer is forgotten."""
    function, ledger = counting().description("t"), topology.ledger
    counting().register(topology)
    with recorded(monkeypatch) as copies:
        asked = topology.drpc("count").begin(3, key="k")
        asked.begun.result(timeout=60)
        assert ledger.run(calls.cancel(ledger.core, function, asked.request))
    with pytest.raises(DRPCFailed, match="cancelled"):
        asked.future.result(timeout=60)
    forget_answers(topology)
    again = topology.drpc("count").begin(3, key="k")
    again.begun.result(timeout=60)
    [answered] = [one for _, one in copies.sent if names_of(one) == ["answer_call"]]
    ledger.store.send([answered])
    with counting().work(topology):
        assert again.future.result(timeout=60) == 3


def test_a_late_begin_begins_no_call_that_was_taken_from_its_caller(topology: Topology) -> None:
    function, ledger = counting().description("t"), topology.ledger
    counting().register(topology)
    own, doubt = function_keys.Function("t", "count"), Doubt("caller", ["k"])
    [[seconds, _]] = ledger.store.send([Request(own.calls, ["TIME"])])
    until = 1000 * (int(seconds) + scripts.VALID)
    begin = scripts.begin_call(ledger.config, own, "k", doubt.caller, 60_000, 10, (b"", until))
    assert ledger.store.send([begin]) == [[b"new"]]
    ledger.run(in_doubt.clear(ledger.core, function, doubt))
    assert [str(one) for one in ledger.store.send([begin])] == ["ACKER LATE"]
    with counting().work(topology):
        assert topology.drpc("count").execute(3, key="k") == 3


def test_an_outcome_that_is_told_again_answers_no_later_call_of_its_key(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies before it confirms an outcome leaves it to be told again."""
    function, ledger, told = counting().description("t"), topology.ledger, list[pa.Table]()
    answer_outcomes = answers.answer_outcomes

    def note(ledger: Ledger, function: Description, table: pa.Table) -> None:
        told.append(table)
        answer_outcomes(ledger, function, table)

    monkeypatch.setattr(answers, "answer_outcomes", note)
    with counting().work(topology):
        client = topology.drpc("count")
        assert client.execute(3, key="acked") == 3
        with pytest.raises(DRPCFailed, match="bad arguments"):
            client.execute("bad", key="failed")
    forget_answers(topology)
    calls_again = [client.begin(2, key=key) for key in ("acked", "failed")]
    for call in calls_again:
        call.begun.result(timeout=60)
    for table in told:
        place = table.schema.get_field_index("at")
        long_ago = pc.subtract(table.column("at"), pa.scalar(timedelta(seconds=function.keep)))
        answer_outcomes(ledger, function, table.set_column(place, table.schema.field("at"), long_ago))
    with counting().work(topology):
        assert [call.future.result(timeout=60) for call in calls_again] == [2, 2]
