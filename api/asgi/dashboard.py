"""The built dashboard, or a page that says how to build it."""

import contextlib
import html
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import NotModifiedResponse
from starlette.types import Receive, Scope, Send

from acker.embedded.processes import tied
from acker.errors import AckerError

_log = logging.getLogger(__name__)
SERVICES = ("/api/", "/metrics")
"""Paths below which nothing is the dashboard's."""
_API = Path(__file__).parent.parent
_BUILDER = _API.parent / "dashboard" / "build.py"
_FAILED = "the dashboard could not be built"
_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="3"><title>acker</title></head>
<body>
<h1>acker</h1>
<p>The dashboard is not built here, or not yet: <code>acker serve</code> in a checkout builds it at its start,
<code>python dashboard/build.py</code> at any time. This page looks for it again and again. The service works:
its schema is at <a href="/api/v1/openapi.json">/api/v1/openapi.json</a>.</p>
</body></html>
"""


def folder() -> Path | None:
    """Returns the folder of the built files: in this package in a wheel, beside the source in a checkout."""
    for place in (_API / "static", _API.parent / "dashboard" / "dist"):
        if (place / "index.html").is_file():
            return place.resolve()
    return None


def _is_checkout() -> bool:
    return not (_API / "static").is_dir() and _BUILDER.is_file()


def prepare() -> Path:
    """Builds the dashboard where this is a checkout and that is not done; returns its directory.

    Takes a minute the first time, and says so on stderr. Raises AckerError.
    """
    if _is_checkout():
        run = subprocess.run([sys.executable, _BUILDER], stdout=subprocess.DEVNULL, check=False)
        if run.returncode:
            raise AckerError(_FAILED)
    root = folder()
    if root is None:
        raise AckerError("this installation of acker has no dashboard")
    return root


@contextmanager
def preparing(failed: Callable[[str], None]) -> Iterator[None]:
    """`prepare` as a process beside what is done meanwhile, which ends it.

    What the builder tells is logged. failed: is called with what is wrong.
    """
    if not _is_checkout():
        if folder() is None:
            failed("this installation of acker has no dashboard")
        yield
        return
    # A group of its own: the builder starts others, and with it they all end.
    command = tied([sys.executable, str(_BUILDER)])
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    ) as builder:
        ended = threading.Event()

        def watch() -> None:
            assert builder.stderr is not None
            for line in builder.stderr:
                _log.info("%s", line.rstrip())
            if builder.wait() and not ended.is_set():
                failed(_FAILED)

        watcher = threading.Thread(target=watch, name="acker-dashboard")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            if builder.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(builder.pid, signal.SIGTERM)
            watcher.join()


class Dashboard:
    """ASGI app for all that is no route: the built files, and the page itself for every other path.

    The page routes by itself, so a path without a file is a view of it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":  # no websocket is ours
            await send({"type": "websocket.close", "code": 1000})
            return
        path = get_route_path(scope)
        if path.startswith(SERVICES):
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        response = self._response(path, scope.get("root_path", ""))
        if _is_known(Headers(scope=scope), response.headers.get("etag")):
            response = NotModifiedResponse(response.headers)
        await response(scope, receive, send)

    @staticmethod
    def _response(path: str, root_path: str) -> Response:
        root = folder()
        if root is None:
            if path not in ("", "/"):
                raise HTTPException(404)
            return HTMLResponse(_NOT_BUILT)
        relative = path.lstrip("/")
        if (file := _file(root, relative)) is not None:
            # A file in assets/ has a hash of its content in its name.
            fresh = relative.startswith("assets/")
            age = "public, max-age=31536000, immutable" if fresh else "no-cache"
            return FileResponse(file, stat_result=file.stat(), headers={"Cache-Control": age})
        # Files have a dot in their name; so may a topology, whose views are under t/.
        if "." in relative.rpartition("/")[2] and not relative.startswith("t/"):
            raise HTTPException(404)
        if root_path:
            return HTMLResponse(_page(root, root_path), headers={"Cache-Control": "no-cache"})
        page = root / "index.html"
        return FileResponse(page, stat_result=page.stat(), headers={"Cache-Control": "no-cache"})


def _is_known(headers: Headers, tag: str | None) -> bool:
    """True if the client has the file with this tag."""
    known = headers.get("if-none-match", "")
    return tag is not None and tag in {one.strip().removeprefix("W/") for one in known.split(",")}


def _page(root: Path, root_path: str) -> str:
    """The page of a service that is behind a path: it names its files, and itself, by that."""
    path = html.escape(root_path.rstrip("/"), quote=True)
    text = (root / "index.html").read_text()
    text = re.sub(r'(href|src)="/(?!/)', lambda match: f'{match[1]}="{path}/', text)
    return text.replace("<head>", f'<head><meta name="acker-path" content="{path}">', 1)


def _file(root: Path, relative: str) -> Path | None:
    """The built file of a path; None where there is none, and for hidden files, which are the builder's."""
    if not relative or "\0" in relative or any(part.startswith(".") for part in relative.split("/")):
        return None
    try:
        file = (root / relative).resolve()
        return file if file.is_relative_to(root) and file.is_file() else None
    except OSError:  # a name that is too long for any file
        return None
