"""The service and its clients, for tests of the API."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from api.main import create_app
from api.settings.settings import Settings
from tests.helpers.faces import patient
from tests.helpers.servers.servers import wait_until

READ, OPERATE = "read-only-token-1", "operators-token-1"


TOKENS = f"read:{READ} operate+rows:{OPERATE}"


@contextmanager
def serving(
    url: str, host: str = "127.0.0.1", port: int = 0, root_path: str = "", **settings: object
) -> Iterator[str]:
    """Runs a service in a thread, on a free port unless one is given; gives its address.

    root_path: the path under which it is, which its address does not have.
    """
    settings = {"timeout": patient.SECONDS / 2, **settings}
    app = create_app(Settings(url=url, **settings))  # type: ignore[arg-type]
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            root_path=root_path,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started
        [listener] = server.servers
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        app.state.live.close()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def calling(address: str, token: str = OPERATE) -> Iterator[httpx.Client]:
    """A client of a service, under /api/v1."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=f"{address}/api/v1", headers=headers, timeout=patient.SECONDS) as client:
        yield client
