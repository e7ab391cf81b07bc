"""Requests by httpx that wait as long as tests have to: others may keep both cores busy."""

import ssl
from functools import partial

import httpx

SECONDS = 60.0
# No test speaks TLS, and to load the certificates for each request takes longer than all the rest.
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

get = partial(httpx.get, timeout=SECONDS, verify=_TLS)
post = partial(httpx.post, timeout=SECONDS, verify=_TLS)
delete = partial(httpx.delete, timeout=SECONDS, verify=_TLS)
put = partial(httpx.put, timeout=SECONDS, verify=_TLS)
stream = partial(httpx.stream, timeout=SECONDS, verify=_TLS)
