import httpx
import pytest

from acker.ledger.client import open_ledger
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees
from tests.helpers.faces.api import TOKENS, calling, serving
from tests.helpers.servers.servers import wait_until


def test_the_history_is_written_by_itself_and_adds_up_across_restarts(valkey_url: str) -> None:
    ledger = open_ledger(Store(valkey_url), "words", ackers=2, message_timeout=60.0)
    Trees(50).track(ledger)

    def tracked(client: httpx.Client, window: str = "10m") -> list[int]:
        found: list[int] = client.get("/topologies/words/stats", params={"window": window}).json()["tracked"]
        return found

    with serving(valkey_url, tokens=TOKENS) as address, calling(address) as client:
        wait_until(lambda: sum(tracked(client)) == 50)
    trees = Trees(70).track(ledger)
    ledger.fail(trees.anchors[:3])
    trees.complete(ledger, 5, 6)
    # Two services at once write it once.
    with (
        serving(valkey_url, tokens=TOKENS) as address,
        serving(valkey_url, tokens=TOKENS),
        calling(address) as client,
    ):
        wait_until(lambda: len(tracked(client)) > 4)
        for window in ("10m", "3h", "1d", "all"):
            found = client.get("/topologies/words/stats", params={"window": window}).json()
            assert found["totals"]["tracked"] == sum(found["tracked"]) == 120
            assert found["totals"]["failed"] == 3
            assert found["totals"]["acked"] == 2
            assert found["totals"]["latency"]["p50"] is not None
            assert found["pending"][-1] == 115
            assert found["buckets"]["nursery"][-1] == 115
            assert found["seconds"][0] is None
        seconds = [at[:19] for at in client.get("/topologies/words/stats").json()["at"]]
        assert len(set(seconds)) == len(seconds)
        recent = client.get("/topologies/words/stats", params={"span": 900, "step": 60}).json()
        assert (recent["window"], recent["step"], recent["totals"]["tracked"]) == ("3h", 60, 120)
        year: dict[str, str | int] = {"span": 900, "until": "2026-01-01T00:00:00Z"}
        old = client.get("/topologies/words/stats", params=year).json()
        assert (old["window"], old["at"], old["totals"]["tracked"]) == ("all", [], 0)
        del year["span"]
        assert client.get("/topologies/words/stats", params=year).json()["at"] == []


@pytest.mark.parametrize("window", ["10m", "3h", "1d", "all"])
def test_a_topology_may_have_no_history(client: httpx.Client, valkey_url: str, window: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=0)
    stats = client.get("/topologies/words/stats", params={"window": window, "step": 7}).json()
    assert stats["at"] == stats["tracked"] == stats["latency"]["p50"] == []
    assert stats["step"] == {"10m": 7, "3h": 10, "1d": 60, "all": 600}[window]
    assert stats["totals"]["tracked"] == 0


def test_a_range_out_of_bounds_is_refused(client: httpx.Client, valkey_url: str) -> None:
    open_ledger(Store(valkey_url), "words", ackers=0)
    wrong: list[dict[str, str]] = [
        {"span": "59"}, {"span": "2592001"},
        *({"span": "900", "until": until} for until in ("noon", "0.5", "2026-01-01", "2026-01-01T00:00:00")),
    ]  # fmt: skip
    for asked in wrong:
        assert client.get("/topologies/words/stats", params=asked).status_code == 422, asked
