"""Child processes that end with their parent."""

import os
import sys
from collections.abc import Sequence

# Runs in place of the program for a moment: asks the kernel to end this process with its parent, then becomes
# the program. A preexec_fn could do the same, but may deadlock in a process that has threads.
_LAUNCHER = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


def tied(command: Sequence[str]) -> list[str]:
    """A command that runs `command`, and is sent SIGTERM when the thread that starts it ends (Linux only).

    The kernel ties a child to the thread, so the thread must live as long as the child is wanted.
    """
    return [sys.executable, "-ISc", _LAUNCHER, str(os.getpid()), *command]
