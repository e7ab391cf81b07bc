"""The app for `uvicorn api.app:app`, set up by the environment (`api.settings.settings`)."""

from acker.errors import AckerError
from api.asgi import logs
from api.main import create_app, freeze
from api.settings.settings import settings

try:
    _settings = settings()
except AckerError as error:
    raise SystemExit(f"acker: {error}") from None
if not _settings.url.get_secret_value():
    raise SystemExit("acker: no store: name one by ACKER_URL, as redis://HOST:PORT/0")
logs.configure(_settings)
app = create_app(_settings)
freeze()
