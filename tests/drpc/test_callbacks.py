"""Callbacks of answers: what they do, and how long they take, is no other call's business."""

import os
import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

from acker.collectors.topology import Topology
from acker.drpc.calling import callbacks
from acker.drpc.calling.client import Client
from acker.errors import DRPCFull
from tests.helpers.builders.counting import Held, counting
from tests.helpers.servers.servers import wait_until

TIMEOUT = 60.0


def test_a_callback_that_asks_the_next_question_gets_its_answer(topology: Topology) -> None:
    answers, ended = list[int](), threading.Event()

    def then(future: Future[Any]) -> None:
        answers.append(future.result())
        if len(answers) == 5:
            ended.set()
            return
        answers.append(client.execute(len(answers)))
        client.submit(len(answers)).add_done_callback(then)

    with counting().work(topology):
        client = topology.drpc("count")
        client.submit(0).add_done_callback(then)
        assert ended.wait(TIMEOUT)
    assert answers == [0, 1, 2, 3, 4]


def test_callbacks_that_never_end_keep_no_answer_back(
    topology: Topology, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "MOST", 3)
    monkeypatch.setattr(callbacks, "MOST_WAITING", 5)
    monkeypatch.setattr(callbacks, "_threads", callbacks._Threads())
    go, ran = threading.Event(), list[int]()

    def never(future: Future[Any]) -> None:
        go.wait(TIMEOUT)
        ran.append(future.result())

    with counting().work(topology):
        client = topology.drpc("count")
        asked = [client.submit(n) for n in range(8)]
        for one in asked:
            one.add_done_callback(never)
        assert wait(asked, TIMEOUT).not_done == set()
        with pytest.raises(DRPCFull, match="5 callbacks of answers wait for others"):
            client.submit(1)
        go.set()
        last = threading.Event()
        wait_until(lambda: not callbacks.waiting())
        client.submit(9).add_done_callback(lambda _: last.set())
        assert last.wait(TIMEOUT)
    assert sorted(ran) == list(range(8))
    assert "3 callbacks of answers to function calls run, the most at a time" in caplog.text


def test_errors_of_a_callback_end_no_thread(topology: Topology, caplog: pytest.LogCaptureFixture) -> None:
    called = list[str]()
    ended = threading.Event()

    def leave(_: Future[Any]) -> None:
        called.append("leave")
        raise SystemExit(3)

    def cancelled(future: Future[Any]) -> None:
        called.append(str(future.cancelled()))
        ended.set()

    with counting().work(topology):
        client = topology.drpc("count")
        future = client.submit(2)
        for function in (leave, leave, lambda _: ended.set()):
            future.add_done_callback(function)
        assert ended.wait(TIMEOUT)
        assert called == ["leave", "leave"]
        assert caplog.text.count("a callback of an answer has raised") == 2
        ended.clear()
        future.add_done_callback(lambda _: called.append(threading.current_thread().name))
        assert called[2:] == [
            threading.current_thread().name
        ]  # the answer is there: at once, as of any future
        gone = client.submit(3)
        gone.add_done_callback(cancelled)
        if gone.cancel():
            assert ended.wait(TIMEOUT)
            assert called[-1] == "True"
        assert client.execute(4) == 4


def test_a_child_runs_callbacks_of_its_own(topology: Topology) -> None:
    def ask(client: Client) -> bool:
        ended = threading.Event()
        client.submit(1).add_done_callback(lambda _: ended.set())
        return ended.wait(TIMEOUT)

    with counting().work(topology):
        client = topology.drpc("count")
        assert ask(client)
        child = os.fork()
        if child == 0:
            threading.Timer(TIMEOUT, os._exit, [2]).start()
            os._exit(0 if ask(client) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert ask(client)


def test_a_future_that_somebody_else_has_given_a_result_keeps_no_other_answer_back(
    topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    with held.function.work(topology):
        client = topology.drpc("count")
        first, second = client.submit(1), client.submit(2)
        first.set_result("mine")
        held.go.set()
        assert second.result(TIMEOUT) == 2
        assert first.result() == "mine"
        assert client.execute(3) == 3
    assert "an answer cannot be given" in caplog.text
