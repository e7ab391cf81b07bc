"""Processes that fork while their threads call functions, or work on them."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
from acker import Topology
from tests.helpers.builders.counting import counting

importing = threading.Event()

class Slow:
    # Where a thread of ours is the first to load pandas, it does so until the process was forked.
    def find_spec(self, name, path=None, target=None):
        if name == "pandas" and threading.current_thread() is not threading.main_thread():
            importing.set()
            threading.Event().wait()

assert "pandas" not in sys.modules
sys.meta_path.insert(0, Slow())
with Topology(sys.argv[1], "t", ackers=2) as topology:
    function = counting()
    function.register(topology)
    if sys.argv[2] == "client":
        client = topology.drpc("count")
        client.submit(3).done()
    else:
        working = function.work(topology)
        working.__enter__()
    assert "pandas" in sys.modules or importing.wait(20.0)
    child = os.fork()
    if child == 0:
        threading.Timer(20.0, os._exit, [2]).start()
        asked = topology.drpc("count").submit(4, timeout=60.0)
        if sys.argv[2] == "client":
            with function.work(topology):
                os._exit(0 if asked.result(60) == 4 else 1)
        os._exit(0 if asked.result(60) == 4 else 1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("who", ["client", "worker"])
def test_a_process_forked_as_soon_as_it_calls_has_a_working_child(valkey_url: str, who: str) -> None:
    """The first array of pyarrow loads pandas, under a lock. A child forked meanwhile waited for it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, valkey_url, who], timeout=60, check=False)
    assert done.returncode == 0
