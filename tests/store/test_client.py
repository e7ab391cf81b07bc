"""Connections: lazily made, shared by threads, not by processes, and errors that come in time."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import redis

from acker.errors import (
    MissingRights,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    ValidationError,
)
from acker.ledger import ids
from acker.ledger.client import Ledger, open_ledger
from acker.store.client import Store
from acker.store.flight import check_server
from acker.store.operation import command
from tests.helpers.builders.ledgers import Trees, counted, opened, reported
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until

LONG = 30.0
"""Seconds that a call takes at most on a busy machine, where it does not wait in vain."""


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("timeout", [0, 0.09, -1, 301, float("nan"), float("inf")])
def test_a_timeout_out_of_range_is_an_error(timeout: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        Store("redis://127.0.0.1", timeout=timeout)


def test_a_store_connects_only_when_it_is_used() -> None:
    store = Store("redis://nowhere.invalid:1/0")
    assert pickle.loads(pickle.dumps(store)) == store
    assert hash(store) == hash(Store("redis://nowhere.invalid:1/0"))


def test_no_message_tells_the_password() -> None:
    store = Store("redis://user:secret@127.0.0.1:1/0", timeout=0.1)
    assert "secret" not in repr(store)
    with pytest.raises(StoreUnavailable) as caught:
        store.send([command("GET", b"key")])
    assert "secret" not in str(caught.value)


def test_where_nothing_listens_the_error_comes_within_the_time_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
        Store(f"redis://127.0.0.1:{port}", timeout=0.5).send([command("GET", b"key")])
    assert 0.5 <= time.monotonic() - started < LONG


def test_where_nobody_answers_each_thread_waits_for_its_own_time_alone() -> None:
    with silent_port() as port:
        store = Store(f"redis://127.0.0.1:{port}", timeout=1.0)

        def ask(_: int) -> float:
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.send([command("GET", b"key")])
            return time.monotonic() - started

        with ThreadPoolExecutor(32) as pool:
            assert max(pool.map(ask, range(32))) < LONG


@pytest.mark.parametrize("version", ["6.2.7", "6.9", "2.8.19", "0", "odd"])
def test_a_server_older_than_7_is_refused(version: str) -> None:
    with pytest.raises(StoreMisconfigured, match=r"needs 7\.0"):
        check_server({"redis_version": version, "maxmemory_policy": "noeviction"}, "redis://h")


@pytest.mark.parametrize("version", ["7.0.0", "7.2.4", "8.0", "10.1.2"])
def test_a_server_of_7_or_later_is_accepted(version: str) -> None:
    check_server({"redis_version": version, "maxmemory_policy": "noeviction"}, "redis://h")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_evict_is_refused_unwritten(new_server: NewServer, kind: str, policy: str) -> None:
    server = new_server(kind, options={"maxmemory": "64mb", "maxmemory-policy": policy})
    with pytest.raises(StoreMisconfigured, match=policy) as refused:
        opened(server.url)
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0
        assert refused.traceback  # whose frames keep what has the connection
        wait_until(lambda: len(client.client_list()) == 1)
        client.config_set("maxmemory-policy", "noeviction")
        Trees(1).track(opened(server.url))


def test_a_server_that_forbids_to_load_scripts_is_an_error_at_once(new_server: NewServer, kind: str) -> None:
    server = new_server(kind)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">word", "~*", "&*", "+@all", "-script")
    started = time.monotonic()
    with pytest.raises(MissingRights, match=r"SCRIPT\|LOAD.*\+script\|load"):
        open_ledger(Store(f"redis://limited:word@127.0.0.1:{server.port}/0", timeout=120), "t")
    assert time.monotonic() - started < LONG


def test_a_command_that_the_server_refuses_is_an_error_with_its_words(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    raw.set("acker:{tested:0/1}:slabs", "not a hash")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        Trees(1).track(ledger)
    raw.delete("acker:{tested:0/1}:slabs")
    Trees(1).track(ledger)


def test_a_full_server_is_an_error_and_what_is_tracked_stays(new_server: NewServer, kind: str) -> None:
    server = new_server(kind)
    ledger = opened(server.url)
    trees = Trees(100).track(ledger)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="maxmemory"):
            Trees(1).track(ledger)
        client.config_set("maxmemory", 0)
    trees.complete(ledger)
    assert len(reported(ledger, trees)) == 100
    counted(ledger, tracked=100, acked=100)


def test_an_interrupt_leaves_no_reply_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(url)
    store.send([command("SET", b"mine", "1"), command("SET", b"yours", "2")])

    def interrupted(connection: object, patience: float) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("acker.store.connections.Connection._feed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.send([command("GET", b"mine")])
    assert store.send([command("GET", b"yours")]) == [b"2"]
    store.send([command("DEL", b"mine"), command("DEL", b"yours")])


def test_a_signal_while_a_call_is_packed_is_an_interrupt_and_no_crash() -> None:
    # In a process of its own: what hiredis makes of an interrupted conversion of a number is a segmentation
    # fault, which would take the tests with it.
    program = """if True:
        import signal
        from acker.store.flight import Flight, NodeBatch
        from acker.store.operation import command
        def interrupt(*_):
            raise KeyboardInterrupt
        batch = Flight([command("SADD", b"numbers", *range(500_000))], "redis://127.0.0.1", 1.0)
        signal.signal(signal.SIGALRM, interrupt)
        for _ in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                batch.pack(NodeBatch(("127.0.0.1", 6379), [0]))
            except KeyboardInterrupt:
                print("interrupted")
                break
    """
    command_line = [sys.executable, "-c", program]
    ended = subprocess.run(command_line, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr


def test_a_frozen_server_is_an_error_in_bounded_time_and_then_all_goes_on(new_server: NewServer) -> None:
    server = new_server()
    patient = opened(server.url)
    trees = Trees(2).track(patient)
    ledger = Ledger(Store(server.url, timeout=0.6), patient.core)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        submission = ledger.core.update(trees.anchors, trees.values)
        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            ledger.send(submission)
        assert time.monotonic() - started < LONG
    finally:
        os.kill(server.pid, signal.SIGCONT)
    patient.send(submission)
    assert len(reported(patient, trees)) == 2
    assert patient.counters()["acked"] == 2
    assert patient.counters()["late"] == 0


def test_a_call_resent_after_a_crash_of_the_server_takes_effect_once(new_server: NewServer) -> None:
    server = new_server(options={"appendfsync": "always"})
    ledger = opened(server.url)
    trees = Trees(4).track(ledger)
    child = ids.new_id()
    emitted = ledger.core.update(trees.anchors[:1], ids.as_ids([int(trees.values[0]) ^ child]))
    ledger.send(emitted)
    server.kill()
    server.restart()
    for call in emitted.calls:
        call.reply = None
    ledger.send(emitted)
    ledger.update(trees.anchors[:1], [child])
    counted(ledger, tracked=4, acked=1, duplicates=1)


def test_a_server_that_lost_everything_is_used_again(url: str, raw: "redis.Redis") -> None:
    ledger = opened(url)
    for _ in range(3):
        Trees(2).track(ledger).complete(ledger)
    raw.flushall()
    trees = Trees(2).track(ledger)
    trees.complete(ledger)
    counted(ledger, tracked=2, acked=2)
    ledger.register_spout("another")
    assert open_ledger(Store(url), "tested", ackers=1).config == ledger.config
