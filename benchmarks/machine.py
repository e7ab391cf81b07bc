"""The machine on which the figures were measured."""

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import redis

from benchmarks.servers import binaries


def describe() -> dict[str, str]:
    """Processor, cores, memory, kernel, versions, and how busy the machine is."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, numpy {np.__version__}, redis-py {redis.__version__}",
        "servers": ", ".join(_version(binary) for binary in binaries()),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def _field(path: str, name: str) -> str:
    """The first value of a name in one of Linux's files; empty where there is none."""
    file = Path(path)
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _version(binary: Path) -> str:
    """The version in a text such as `Redis server v=7.0.15 sha=...`."""
    out = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    words = out.split()
    number = next((word.removeprefix("v=") for word in words if word.startswith("v=")), out.strip())
    return f"{words[0]} {number}"
