"""Late copies of the calls of a removed topology: they leave nothing, and name nothing in a new one."""

from contextlib import suppress

import pyarrow as pa
import pytest

from acker.errors import AckerError
from acker.inspect.operate.removal import remove
from acker.ledger.settings import topologies
from acker.store import function_keys, keys
from acker.store.client import Store
from acker.store.operation import command
from acker.streams import StreamWriter
from tests.helpers.builders.filled import filled
from tests.helpers.builders.ledgers import Trees, opened
from tests.helpers.faults.late_copies import recorded
from tests.helpers.faults.set_backs import lasting
from tests.helpers.faults.simulator import names_of

pytestmark = pytest.mark.cluster(slow=True)


def test_late_copies_of_calls_leave_nothing_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch, commands=True) as copies:
        filled(url, "words")
    assert Store(url).run(remove("words", force=True)) > 600
    Store(url).send([command("UNLINK", function_keys.Function("words", "asks").answer("a"))])  # it has ended
    left = dict[str, set[bytes]]()
    for store, request in copies.sent:
        with suppress(AckerError):
            store.send([request])
        if found := lasting(url, "words"):
            left.setdefault("/".join(names_of(request)), set()).update(found)
            store.send([command("UNLINK", key) for key in found])
    by_hand = {keys.Stream("words", "words").drops, keys.activity("words", "chart_marks")}
    assert left.pop("XADD") == by_hand
    assert not left
    assert Store(url).run(topologies.names()) == []


def test_late_copies_of_calls_name_nothing_in_a_topology_that_was_made_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("name_stream", "register_step", "number_step", "declare_line")
    with recorded(monkeypatch) as copies:
        filled(url, "words")
    opened(url, "words", ackers=2).run(remove("words", force=True))
    with suppress(AckerError):
        copies.come(*names)
    anew = opened(url, "words", ackers=2)
    copies.come(*names)
    assert not lasting(url, "words").keys() & {
        keys.streams("words"), keys.steps("words"), keys.step_numbers("words"), keys.lines("words")
    }  # fmt: skip
    StreamWriter(anew, "new").write(pa.table({"id": range(3)}))
    assert anew.store.send([command("SMEMBERS", keys.streams("words"))]) == [[b"new"]]


def test_late_copies_of_a_removal_leave_the_topology_that_was_made_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(url, "words")
    with recorded(monkeypatch, commands=True) as copies:
        ledger.run(remove("words", force=True))
    anew = filled(url, "words")
    trees, acked = Trees(40).track(anew), anew.counters()["acked"]
    before = lasting(url, "words")
    for store, request in copies.sent:
        store.send([request])
    assert lasting(url, "words") == before
    assert anew.run(topologies.names()) == ["words"]
    trees.complete(anew)
    assert anew.counters()["acked"] == acked + 40
