"""The users of deploy/acker.acl against each kind of key: as they are, and bound to one topology."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from acker.errors import MissingRights
from acker.inspect.trees import pages
from acker.ledger.client import open_ledger
from acker.store import function_keys, keys
from acker.store.client import Store
from tests.helpers.builders.ledgers import Trees
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.rights import FILE, ROLES, Rights, users

BOUND = tuple(role for role in ROLES if role not in ("service", "reader"))
MAY = {
    "list of topologies": "rwwrrr",
    "list of functions": "-wwr--",
    "configuration": "rwwrrr",
    "health": "--wr--",
    "activity": "--wr--",
    "marks on charts": "--wr--",
    "history": "--wr--",
    "idempotency key": "--wr--",
    "streams": "wwwrww",
    "lines": "rwwrrr",
    "steps": "wwwrw-",
    "commits": "wwwr--",
    "removals": "rwwrrr",
    "clock of a shard": "wwwrww",
    "ack vector": "wwwrww",
    "outcomes": "wwwrww",
    "entries of a stream": "wwwrww",
    "payload": "wwwr--",
    "kept rows": "-wwr--",
    "dead letters": "-wwr--",
    "calls of a function": "-wwr--",
    "of others": "------",
}
"""The rights of each of `ROLES` on a kind of key: read and write (w), read (r), or nothing (-)."""


def of_topology(name: str) -> dict[str, bytes]:
    """A key of each kind that a topology has."""
    stream, spout, shard = keys.Stream(name, "lines"), keys.Spout(name, "s"), keys.Shard(name, 0, 2)
    return {
        "configuration": keys.config(name),
        "health": keys.health(name),
        "activity": keys.activity(name),
        "marks on charts": keys.activity(name, "chart_marks"),
        "history": keys.history(name, 1),
        "idempotency key": keys.idempotency_key(name, "k"),
        "streams": keys.streams(name),
        "lines": keys.lines(name),
        "steps": keys.steps(name),
        "commits": keys.commits(name, "w"),
        "removals": keys.removals(name),
        "clock of a shard": shard.clock,
        "ack vector": shard.vector(b"slab"),
        "outcomes": shard.outcomes("s"),
        "entries of a stream": stream.entries,
        "payload": stream.payload("1-2"),
        "kept rows": spout.kept,
        "dead letters": spout.dead,
        "calls of a function": function_keys.Function(name, "f").calls,
    }


OF_STORE = {"list of topologies": keys.TOPOLOGIES, "list of functions": keys.FUNCTIONS, "of others": b"other"}


@pytest.fixture
def rights(new_server: NewServer, kind: str, tmp_path: Path) -> Iterator[Rights]:
    with users(new_server, kind, tmp_path) as rights:
        yield rights


def may(operator: Redis, user: str, key: bytes) -> str:
    """The rights of a user on a key, by the server's own word."""
    reads, writes = (
        operator.execute_command("ACL", "DRYRUN", user, *words) == b"OK"  # type: ignore[no-untyped-call]
        for words in (("STRLEN", key), ("XDEL", key, "0-1"))
    )
    return ("w" if writes else "r") if reads else "-"


def bind(rights: Rights, role: str, topology: str) -> str:
    """Makes a user of a role that is bound to a topology, as docs/store.md says; its name."""
    [line] = [line for line in FILE.read_text().splitlines() if line.startswith(f"user acker-{role} ")]
    line = line.replace("acker:{*", f"acker:{{{topology}").replace(" off ", " on >word ")
    for name in ("topologies", "functions"):
        line = line.replace(f" ~acker:{name} ", f" %R~acker:{name} ")
    user = f"acker-bound-{role}"
    rights.operator.execute_command("ACL", "SETUSER", user, *line.split()[2:])
    return user


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_with_each_kind_of_key_what_its_work_takes(rights: Rights, role: str) -> None:
    found = {
        kind: may(rights.operator, f"acker-{role}", key)
        for kind, key in {**OF_STORE, **of_topology("t")}.items()
    }
    assert found == {kind: MAY[kind][ROLES.index(role)] for kind in found}
    assert found.keys() == MAY.keys()


@pytest.mark.parametrize("role", BOUND)
def test_a_user_bound_to_a_topology_changes_neither_others_nor_the_lists(rights: Rights, role: str) -> None:
    user = bind(rights, role, "t")
    for kind, key in of_topology("t").items():
        assert may(rights.operator, user, key) == MAY[kind][ROLES.index(role)], kind
    for kind, key in of_topology("t2").items():
        assert may(rights.operator, user, key) == "-", kind
    for kind, key in OF_STORE.items():
        assert may(rights.operator, user, key) == MAY[kind][ROLES.index(role)].replace("w", "r"), kind
    assert may(rights.operator, user, keys.LISTED + b"t") == "-"


def test_a_bound_spout_works_on_its_topology_and_makes_no_other(rights: Rights) -> None:
    service = rights.url("service")
    for name in ("t", "t2"):
        open_ledger(Store(service), name, ackers=1)
    bind(rights, "spout", "t")
    bound = Store(rights.url("bound-spout"))
    ledger = open_ledger(bound, "t", ackers=1)
    ledger.register_spout("another")
    trees = Trees(2).track(ledger)
    trees.complete(ledger, 0)
    assert ledger.counters()["acked"] == 1
    assert len(ledger.run(pages.trees(ledger.core)).trees) == 1
    for name in ("t2", "new"):
        with pytest.raises(MissingRights):
            open_ledger(bound, name, ackers=1)
    assert rights.operator.smembers(keys.TOPOLOGIES) == {b"t", b"t2"}


@pytest.mark.parametrize("role", ROLES)
def test_a_script_reaches_no_key_that_its_caller_may_not_use(rights: Rights, role: str) -> None:
    rights.operator.set("other", "1")
    readonly = role == "reader"
    code = ("#!lua flags=no-writes\n" if readonly else "") + "return redis.call('GET', 'other')"
    digest = rights(role, "SCRIPT", "LOAD", code).decode()
    with pytest.raises(ResponseError, match=r"(?i)can't access|no permission"):
        rights(role, "EVALSHA_RO" if readonly else "EVALSHA", digest, "0")
    assert rights.operator.delete("other") == 1
