"""HEAD wherever there is GET: the same answer without its body."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """ASGI middleware: asks the app for what GET would give, and sends only how it begins."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def start_only(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                begun.set()

        async def gone() -> Message:
            """Tells an endless answer, as soon as it has begun, that its reader has left."""
            await begun.wait()
            return {"type": "http.disconnect"}

        await self.app({**scope, "method": "GET"}, gone, start_only)
