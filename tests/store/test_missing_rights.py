"""A user who lacks rights: each call says which before it changes anything, and no ack is ever lost by it."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from acker import Topology, cli
from acker.errors import MissingRights, StoreError
from acker.inspect.trees import pages
from acker.ledger import async_ledger
from acker.ledger.client import open_ledger
from acker.ledger.tick.async_ticker import AsyncTicker
from acker.ledger.tick.ticker import Ticker
from acker.ledger.trees import trees as ledger_trees
from acker.store import scripts
from acker.store.async_client import AsyncStore
from acker.store.client import Store
from acker.store.operation import Request, command
from tests.helpers.builders.ledgers import Trees, opened, reported
from tests.helpers.builders.tickers import running
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import raw_clients, wait_until

ALL = scripts.load_all().values()
COMMANDS = sorted({name for script in ALL for name in script.commands})


class User:
    """A user of a store who may do everything until something is taken away, on each of its servers."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = parts._replace(netloc=f"limited:word@{parts.netloc}").geturl()
        self._servers: list[Any] = raw_clients(url)
        self.set("reset", "on", ">word", "~*", "+@all")

    def set(self, *words: str, nodes: slice = slice(None)) -> None:
        for server in self._servers[nodes]:
            server.execute_command("ACL", "SETUSER", "limited", *words)

    def everything(self) -> dict[bytes, bytes]:
        """All keys of the store with what they hold."""
        return {key: server.dump(key) for server in self._servers for key in server.scan_iter()}

    def close(self) -> None:
        for server in self._servers:
            server.execute_command("ACL", "DELUSER", "limited")
            server.close()


@pytest.fixture
def user(url: str) -> Iterator[User]:
    made = User(url)
    yield made
    made.close()


def test_each_script_names_the_command_that_it_may_not_run_before_it_changes_anything(user: User) -> None:
    ledger = opened(user.url)
    Trees(3).track(ledger)
    key = ledger.core.shards[0].slabs
    before = user.everything()
    for name in COMMANDS:
        user.set(f"-{name.lower()}")
        for script in (one for one in ALL if name in one.commands):
            with pytest.raises(
                MissingRights, match=rf"'limited'.* '{script.name}'.*\+{name.lower()}$"
            ) as found:
                ledger.store.send([Request(key, [], script, [key])])
            assert found.value.commands == (name,)
        user.set(f"+{name.lower()}")
    assert user.everything() == before


def test_rights_that_are_taken_away_in_the_middle_lose_nothing(user: User) -> None:
    topology = Topology(user.url, "t", ackers=1, linger=60.0)
    spout, bolt = topology.spout("s"), topology.bolt("b")
    calls = {name: set(scripts.get(name).commands) for name in ("track", "update", "fail", "confirm")}
    needed = sorted(set().union(*calls.values()))

    def trees() -> dict[bytes, bytes]:
        """All but what other calls of a flush have written: how many tuples were emitted, who is at work."""
        others = (b":writers", b":counters", b":steps", b":step_numbers")
        return {k: v for k, v in user.everything().items() if not k.endswith(others)}

    def flush(call: str, name: str) -> None:
        """Flushes without a right, which changes nothing if it is needed, and with it again."""
        user.set(f"-{name.lower()}")
        before = trees()
        if name in calls[call]:
            with pytest.raises(MissingRights, match=rf"\+{name.lower()}\b"):
                topology.flush()
            assert trees() == before
        user.set(f"+{name.lower()}")
        topology.flush()

    for number, name in enumerate(needed):
        good, bad = spout.emit(f"{number} good") + spout.emit(f"{number} bad")
        flush("track", name)
        bolt.ack(good)
        flush("update", name)
        bolt.fail(bad, "bad")
        flush("fail", name)
        found = {}
        for outcome in spout.outcomes(timeout=60.0):
            found[outcome.message_id] = outcome.status
            spout.confirm(outcome)
            if len(found) == 2:
                break
        assert found == {b"%d good" % number: "acked", b"%d bad" % number: "failed"}
        flush("confirm", name)
    counted = topology.counters()
    assert (counted["acked"], counted["failed"]) == (len(needed), len(needed))
    assert (counted["late"], counted["expired"], counted["orphaned"]) == (0, 0, 0)
    topology.close()


@pytest.mark.cluster
def test_a_node_whose_users_have_fewer_rights_loses_no_ack(user: User) -> None:
    ledger = open_ledger(Store(user.url), "t", ackers=8)
    trees = [Trees(2).track(ledger) for _ in range(80)]  # the node has two shards of eight
    user.set("-xadd", nodes=slice(1))
    sent = [ledger.core.update(tree.anchors, tree.values) for tree in trees]
    refused = []
    for tree in sent:
        try:
            ledger.send(tree)
        except MissingRights as error:
            refused.append(error.commands)
    assert set(refused) == {("XADD",)}
    user.set("+xadd")
    assert sum(ledger.send(tree).late for tree in sent) == 0
    assert reported(ledger, *trees).total() == 160


async def test_the_asyncio_twin_says_the_same_and_loses_as_little(user: User) -> None:
    trees = Trees(2).track(opened(user.url, "t"))
    async with AsyncStore(user.url) as store:
        ledger = await async_ledger.open_ledger(store, "t", create=False)
        sent = ledger.core.update(trees.anchors, trees.values)
        user.set("-xadd", "-bitpos")
        before = user.everything()
        with pytest.raises(MissingRights, match="BITPOS, XADD") as caught:
            await ledger.send(sent)
        assert user.everything() == before
        assert (caught.value.user, caught.value.call) == ("limited", "update")
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        user.set("+xadd", "+bitpos")
        assert (await ledger.send(sent)).late == 0
        user.set("-smembers")
        with pytest.raises(MissingRights, match="SMEMBERS"):
            await AsyncTicker(store).step()
    assert reported(opened(user.url, "t"), trees).total() == 2


@pytest.mark.parametrize("keys", ["~acker:{other*", "%R~acker:*", "%W~acker:*", "~acker:*:clock"])
def test_keys_that_a_user_may_not_use_count_too(user: User, keys: str) -> None:
    trees = Trees(2).track(opened(user.url, "t"))
    ledger = opened(user.url, "t")
    sent = ledger.core.update(trees.anchors, trees.values)
    user.set("resetkeys", keys)
    before = user.everything()
    with pytest.raises(
        MissingRights, match=r"user 'limited' has no permission to use a key .*\{t:0/1\}.*~acker"
    ):
        ledger.send(sent)
    assert user.everything() == before
    user.set("~*")
    assert ledger.send(sent).late == 0


def test_other_rights_are_named_too(
    user: User, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ledger = opened(user.url, "t")
    for right in ("evalsha", "hmget"):
        user.set(f"-{right}")
        with pytest.raises(MissingRights, match=rf"{right.upper()}.* \+{right}") as found:
            Trees(1).track(ledger) if right == "evalsha" else ledger.counters()
        assert found.value.commands == (right.upper(),)
        user.set(f"+{right}")
    user.set("-info", "-smembers")
    with pytest.raises(MissingRights, match=r"'limited'.* INFO.* \+info"):
        Store(user.url, timeout=7.0).send([command("EXISTS", b"acker:topologies")])
    with running(Ticker(ledger.store)):  # it waits for the right, and does not end
        wait_until(lambda: "no ticks for now" in caplog.text)
    with pytest.raises(SystemExit):
        cli.main(["topologies", "--url", user.url])
    assert "+smembers" in capsys.readouterr().err


def test_who_may_only_read_is_asked_only_for_what_a_reading_needs(user: User) -> None:
    trees = Trees(2).track(opened(user.url, "t"))
    user.set(
        "resetkeys", "%R~acker:*", "-@all", "+evalsha_ro", "+script|load", "+info", "+hgetall", "+sismember"
    )
    user.set(*(f"+{name.lower()}" for name in scripts.get("read_tree").commands))
    ledger = open_ledger(Store(user.url), "t", create=False)
    assert ledger.run(ledger_trees.tree(ledger.core, int(trees.anchors[0]))) is not None
    with pytest.raises(MissingRights, match=r"SSCAN.*'scan_slabs'"):
        ledger.run(pages.trees(ledger.core))


def test_a_command_with_another_name_is_named(new_server: NewServer, kind: str, tmp_path: Path) -> None:
    (tmp_path / "renamed.conf").write_text('rename-command XADD ""\n')
    server = new_server(kind, append_only=False, options={"include": str(tmp_path / "renamed.conf")})
    with pytest.raises(MissingRights, match="XADD"):
        Trees(1).track(opened(server.url))
    with redis.Redis.from_url(server.url) as client:
        assert not [key for key in client.scan_iter() if b":0}" in key]


def test_a_topology_named_like_damage_is_not_taken_for_damaged(user: User) -> None:
    ledger = opened(user.url, "UNREADABLE")
    user.set("resetkeys", "~acker:topologies")
    with pytest.raises(StoreError) as found:
        ledger.counters()
    assert type(found.value) is MissingRights
