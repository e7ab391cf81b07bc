"""`python -m api` prints the schema of the service, for clients to be made from."""

import json
import sys

from api import openapi
from api.main import create_app
from api.settings.settings import Settings

if __name__ == "__main__":
    json.dump(openapi.build(create_app(Settings())), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
