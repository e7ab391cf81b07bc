"""A service behind a path: by uvicorn's root path, as a part of another app, behind proxies of each kind."""

import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from acker.ledger.client import open_ledger
from acker.store.client import Store
from api.main import create_app
from api.settings.settings import Settings
from tests.helpers.faces import patient
from tests.helpers.faces.api import OPERATE, READ, TOKENS
from tests.helpers.servers.servers import wait_until

GUARDED = (
    "/api/v1/topologies",
    "/api/v1/topologies/words",
    "/api/v1/openapi.json",
    "/api/v1/nothing",
    "/api%2Fv1%2Ftopologies",
    "/metrics",
)


@contextmanager
def behind(app: ASGIApp, root_path: str = "") -> Iterator[str]:
    """Runs an app by uvicorn with a root path; gives its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, root_path=root_path)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        [listener] = server.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def service(url: str, tokens: str = TOKENS) -> FastAPI:
    open_ledger(Store(url), "words", ackers=1)
    return create_app(Settings(url=url, tokens=tokens, ticker=False, history=False, timeout=30))  # type: ignore[arg-type]


def mounted(app: FastAPI) -> FastAPI:
    """An app of somebody else that has the service under /acker."""

    @asynccontextmanager
    async def lifespan(_: FastAPI):  # type: ignore[no-untyped-def]
        async with app.router.lifespan_context(app):
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/acker", app)
    return outer


def check_guarded(address: str) -> None:
    for path in GUARDED:
        assert patient.get(address + path).status_code == 401, path
    read, operate = ({"Authorization": f"Bearer {token}"} for token in (READ, OPERATE))
    path = f"{address}/api/v1/topologies/words"
    assert patient.get(path, headers=read).json()["topology"] == "words"
    assert patient.post(f"{path}/fail", json={"anchors": ["1"]}, headers=read).status_code == 403
    refused = patient.post(
        f"{path}/fail", json={"anchors": ["1"]}, headers={**operate, "Origin": "https://evil.example"}
    )
    assert refused.status_code == 403
    assert refused.headers["cache-control"] == "no-store"
    assert patient.get(f"{address}/healthz").json() == {"status": "ok"}
    assert patient.get(f"{address}/").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("root_path", ["/acker", "/acker/", "/a/b", "/api"])
def test_behind_a_root_path_the_proxy_may_take_it_off_or_not(valkey_url: str, root_path: str) -> None:
    with behind(service(valkey_url), root_path) as address:
        check_guarded(address)
        if root_path != "/api":  # where paths of the service itself begin so, it has to be taken off
            kept = address + root_path.rstrip("/")
            check_guarded(kept)
            assert patient.get(kept).text == patient.get(f"{address}/").text


def test_a_proxy_that_does_not_strip_the_path_opens_no_door(valkey_url: str) -> None:
    app = service(valkey_url)
    app.root_path = "/acker"  # as FastAPI(root_path=...) has it: requests come with the path
    with behind(app) as address:
        check_guarded(f"{address}/acker")
        check_guarded(address)


def test_a_service_in_another_app_is_guarded(valkey_url: str) -> None:
    with behind(mounted(service(valkey_url))) as address:
        check_guarded(f"{address}/acker")


@pytest.mark.parametrize("path", ["/api/v1/topologies", "/metrics"])
def test_without_tokens_other_names_are_refused_behind_a_path_too(valkey_url: str, path: str) -> None:
    with behind(mounted(service(valkey_url, tokens=""))) as address:
        assert patient.get(f"{address}/acker{path}").status_code == 200
        rebound = patient.get(f"{address}/acker{path}", headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["type"]) == (403, "urn:acker:unknown-host")
