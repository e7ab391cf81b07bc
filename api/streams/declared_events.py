"""Server-sent events in the schema of the service."""

from typing import Any


def event_stream(
    description: str, kinds: list[str], id_words: str, example: str
) -> dict[int | str, dict[str, Any]]:
    """The answer of a route that is an event stream, for its `responses`.

    Args:
        description: Its description.
        kinds: The names of its events.
        id_words: The meaning of an event's id.
        example: An event.
    """
    properties = {
        "event": {"type": "string", "enum": kinds},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "id": {"type": "string", "description": id_words},
        "retry": {"type": "integer", "minimum": 0},
    }
    schema = {"type": "object", "properties": properties, "required": ["event", "data"]}
    return {
        200: {
            "description": description,
            "content": {"text/event-stream": {"schema": schema, "example": example}},
        }
    }
