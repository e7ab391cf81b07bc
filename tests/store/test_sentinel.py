"""A service that Sentinels watch: its master is found by their word, and its replica when they name that."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker.errors import StoreUnavailable
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import command
from tests.helpers.builders.ledgers import Trees, counted, opened, reported
from tests.helpers.servers.sentinels import Sentinels
from tests.helpers.servers.servers import KINDS, binary, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = 90.0


@pytest.fixture(params=[KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow)])
def sentinels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(tmp_path, binary=binary(request.param)) as sentinels:
        yield sentinels


async def test_the_master_is_followed_when_it_dies(sentinels: Sentinels) -> None:
    ledger = opened(sentinels.url, ackers=2, timeout=PATIENCE)
    trees = Trees(3).track(ledger)
    async with AsyncStore(sentinels.url, timeout=PATIENCE) as twin:
        await twin.send([command("SET", b"acker:{seen}:turn", "1")])
        assert sentinels.call(0, "WAIT", 1, 60_000) == 1
        sentinels.servers[0].kill()
        await asyncio.to_thread(trees.complete, ledger)
        assert await twin.send([command("GET", b"acker:{seen}:turn")]) == [b"1"]
        await twin.send([command("DEL", b"acker:{seen}:turn")])
    assert sentinels.call(1, "ROLE")[0] == b"master"
    assert len(reported(ledger, trees)) == 3
    counted(ledger, tracked=3, acked=3)
    # A master that comes back is made a replica, and its clients go on.
    sentinels.be_patient()
    sentinels.servers[0].start()
    wait_until(lambda: sentinels.call(0, "ROLE")[0] == b"slave", timeout=PATIENCE)
    Trees(2).track(ledger).complete(ledger)
    counted(ledger, tracked=5, acked=5)


async def test_a_sentinel_that_tells_what_does_not_hold_is_not_asked_for_ever(sentinels: Sentinels) -> None:
    sentinels.mislead(0)  # which is the first of the URL
    assert Store(sentinels.url, timeout=PATIENCE).send([command("EXISTS", b"key")]) == [0]
    async with AsyncStore(sentinels.url, timeout=PATIENCE) as twin:
        assert await twin.send([command("EXISTS", b"key")]) == [0]


def test_a_service_that_no_sentinel_knows_is_an_error_in_bounded_time(tmp_path: Path) -> None:
    with Sentinels(tmp_path, binary=binary("valkey"), sentinel_options={"requirepass": "word"}) as sentinels:
        password = "?sentinel_password=word"
        with pytest.raises(StoreUnavailable, match="known"):
            Store(f"redis+sentinel://{sentinels.hosts}/other{password}", timeout=0.5).send(
                [command("EXISTS", b"key")]
            )
        assert Store(sentinels.url + password, timeout=60).send([command("EXISTS", b"key")]) == [0]
