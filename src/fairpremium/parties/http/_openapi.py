"""The OpenAPI document: what each route does, who may call it, what it takes, which problems it may answer with."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from fairpremium.parties.protocol import ID, PROBLEMS, FitSpec, Message, PortfolioSpec, Report, StudySpec
from fairpremium.parties.service import RIGHTS, ThirdParty

from ._answers import PROBLEM_TYPE

KEY_TEXT = "[0-9a-f]{32}"
_PIECE = 1 << 15

Id = Annotated[str, Path(pattern=f"^{ID.pattern}$")]
Number = Annotated[int, Path(ge=0, le=999_999)]
KeyText = Annotated[str, Path(pattern=f"^{KEY_TEXT}$")]
AttributeName = Annotated[str | None, Query(pattern=f"^{ID.pattern}$")]  # in a study of several

# What may answer every request, every signed one, one that names a thing, one that brings a body.
ANY = ("not-found", "too-many")  # also under a name that is not this service's
SIGNED = (*ANY, "unsigned", "digest-mismatch", "unavailable", "storage-full")
NAMED = (*SIGNED, "bad-id")
SENT = (*NAMED, "malformed", "too-large", "length-required", "conflict")

_KINDS = {"type": "string", "enum": [f"urn:fairpremium:problem:{code}" for code in PROBLEMS]}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {"type": _KINDS, "title": {"type": "string"}, "status": {"type": "integer"}},
    "additionalProperties": False,
}
_PROBLEM_ANSWER = {"description": "A problem document (RFC 9457).", "content": {PROBLEM_TYPE: {"schema": _PROBLEM}}}


def route(app: FastAPI, method: str, path: str, codes: tuple[str, ...], **options: Any) -> Callable[..., Any]:
    """Return the decorator that adds a route with the problems that it may answer."""
    statuses = sorted({PROBLEMS[code].status for code in codes})
    responses: dict[int | str, Any] = dict.fromkeys(statuses, _PROBLEM_ANSWER)
    return app.api_route(path, methods=[method], responses=responses, **options)


def takes_file(kind: str) -> dict[str, Any]:
    """Describe a body that is a file of a media type."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def takes_message(kind: type[Message]) -> dict[str, Any]:
    """Describe a body that is a message."""
    schema = {"$ref": f"#/components/schemas/{_sent(kind.__name__)}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """Describe the service, with the forms of all bodies."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        for kind in (StudySpec, Report, PortfolioSpec, FitSpec):
            schema = kind.model_json_schema(ref_template=f"#/components/schemas/{_sent('{model}')}")
            nested = schema.pop("$defs", {})
            forms = {_sent(name): form for name, form in {**nested, kind.__name__: schema}.items()}
            document["components"]["schemas"].update(forms)
        for each in app.routes:
            if isinstance(each, APIRoute) and each.methods:
                _describe_command(document["paths"][each.path][min(each.methods).lower()], each.name)
    return app.openapi_schema  # type: ignore[return-value]


def add_description(app: FastAPI) -> None:
    """Add the route of the document, whose bytes are made once: it is large, and everybody may ask for it."""
    content = b""

    async def get_openapi(_: Request) -> Response:
        nonlocal content
        if not content:
            content = bytes(JSONResponse(describe(app)).body)
        headers = {"Content-Length": str(len(content))}
        return StreamingResponse(_in_pieces(content), media_type="application/json", headers=headers)

    app.add_route("/v1/openapi.json", get_openapi, name="openapi", include_in_schema=False)


async def _in_pieces(content: bytes) -> AsyncIterator[bytes]:
    """Yield some bytes at a time: who does not read them does not make this process keep all of them."""
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


def _describe_command(operation: dict[str, Any], name: str) -> None:
    """Say what a command does, and the roles that may use it; what has no roles is open to all."""
    command = getattr(ThirdParty, name, None)
    if command is not None:
        operation["description"] = inspect.getdoc(command)
    operation["x-roles"] = sorted(RIGHTS.get(name, ()))


def _sent(name: str) -> str:
    """Name the form in which a message is sent; what comes back under its plain name has all fields."""
    return f"Sent{name}"
