"""The end of a process waits for threads that read rows again: an abort would hide that its work is done."""

import subprocess
import sys

PROGRAM = """
import threading
from acker.spark.source.rereading import run_until_exit

def run(stop):
    stop.wait()
    print("ended", flush=True)

run_until_exit(run, threading.Event(), "reads rows again")
"""


def test_the_end_of_a_process_waits_for_the_step_of_such_a_thread() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "ended\n"
