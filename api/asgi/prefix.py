"""The path under which a service is called that is behind a proxy: whether that takes it off or not."""

from starlette._utils import get_route_path
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from api.asgi.dashboard import SERVICES


class Prefix:
    """ASGI middleware: takes the root path off the path of a request that has it twice.

    uvicorn puts its root path before each path that it is asked for, as a proxy has taken it off. Where one
    has not, it is still there. This is the outermost layer, because the layers for access and logs need the
    path that the router sees.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        root = scope.get("root_path", "").rstrip("/")
        if root and scope["type"] == "http" and _kept(scope, root):
            scope = {**scope, "path": get_route_path(scope), "root_path": root}
        await self.app(scope, receive, send)


def _kept(scope: Scope, root: str) -> bool:
    """True if the path that the router sees still begins with the root path, which may be /api itself."""
    path = get_route_path(scope)
    if path != root and not path.startswith(f"{root}/"):
        return False
    if path.startswith(SERVICES) and not path.removeprefix(root).startswith(SERVICES):
        return False
    return all(route.matches(scope)[0] is Match.NONE for route in scope["app"].routes)
