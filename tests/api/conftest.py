"""A running service for tests: uvicorn on a free port of the loopback address, on a real store."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.helpers.faces.api import TOKENS, calling, serving


@pytest.fixture
def serve() -> Callable[..., object]:
    """`serving`, for tests that need settings of their own."""
    return serving


@pytest.fixture
def address(valkey_url: str) -> Iterator[str]:
    """The address of a service of an empty store; it neither ticks nor samples by itself."""
    with serving(valkey_url, tokens=TOKENS, ticker=False, history=False, writes_per_second=1000) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    """A client that may operate."""
    with calling(address) as found:
        yield found
