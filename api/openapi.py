"""The schema of the service."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.problems import Problem
from api.routes import events
from api.routes.clients import spouts

_REF = "#/components/schemas/{model}"
_DESCRIPTION = """Look at and look after the ledgers of a store.

Ids of 64 bits are strings of decimal digits; times are ISO 8601 in UTC; durations are seconds. Message ids
and reasons are anybody's text. Errors are problem details (RFC 9457)."""


def operation_id(route: APIRoute) -> str:
    """The name of an operation: the name of its function."""
    return route.name


def build(app: FastAPI, *, tokens: bool = True) -> dict[str, Any]:
    """The schema of an app, made once. tokens: whether it asks for them."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes
        )
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        for model in (Problem, *events.SCHEMAS, *spouts.SCHEMAS):
            _add(schemas, model)
        for name in (
            "HTTPValidationError",
            "ValidationError",
        ):  # FastAPI's own, in place of which we have problems
            schemas.pop(name, None)
        schema["components"]["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of the service: `read` to look, `operate` to change.",
            }
        }
        needed: list[dict[str, list[str]]] = [{"token": []}] if tokens else [{"token": []}, {}]
        for path, operations in schema["paths"].items():
            guarded = path.startswith(("/api/", "/metrics"))
            for operation in operations.values():
                operation["security"] = needed if guarded else []
        app.openapi_schema = schema
    return app.openapi_schema


def _add(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    made = model.model_json_schema(ref_template=_REF, mode="serialization")
    for name, definition in {**made.pop("$defs", {}), model.__name__: made}.items():
        schemas.setdefault(name, definition)
