"""Write the page of the HTTP API from the document that the service shows at /v1/openapi.json: `make reference`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fairpremium.parties.http import create_app
from fairpremium.parties.protocol import PROBLEMS
from fairpremium.parties.service import ServiceSettings, ThirdParty

PAGE = Path(__file__).resolve().with_name("http-api.md")
GROUPS = {
    "Studies": "/v1/studies",
    "Portfolios": "/v1/portfolios",
    "Fits": "/v1/fits",
    "Log, keys and checkpoint": "/v1/",
    "Operations": "/",
}
HEAD = """\
# HTTP API

After this page you can call the third party's service from another program than this library. The service shows the
same as an OpenAPI document at `/v1/openapi.json`; `make reference` writes this page from it.

- **Signatures.** A route with roles takes signed requests only: RFC 9421 with Ed25519, as
  [the parties](../guide/parties.md) have it. The key says which party asks. What its role may not do does not exist for
  it.
- **Repetition.** The same `PUT` again is answered as before. Another content under the same id is a conflict.
- **Errors.** Every error is a problem document (RFC 9457) from the closed list [below](#problems). It never repeats a
  value of a request.
- **Request ids.** Every answer names its request in `x-request-id`. The
  [operational log](../guide/operations-logs.md) has the same id.
"""


def read_document() -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    with tempfile.TemporaryDirectory() as folder:
        party = ThirdParty(folder)
        try:
            return dict(create_app(ServiceSettings(folder=folder), party).openapi())
        finally:
            party.close()


def page(document: dict[str, Any]) -> str:
    """Return the page of a document."""
    return "\n".join([HEAD, *routes(document), *messages(document), *problems()])


def routes(document: dict[str, Any]) -> list[str]:
    """Return a table of routes for each group."""
    lines = ["## Routes", ""]
    left = dict(document["paths"])
    for title, start in GROUPS.items():
        mine = {path: left.pop(path) for path in list(left) if path.startswith(start)}
        lines += [f"### {title}", "", "| route | who | what it does | sends | answer | problems |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        for path, operations in mine.items():
            for method, operation in operations.items():
                lines.append(_row(f"`{method.upper()} {path}`", operation))
        lines.append("")
    return lines


def _row(route: str, operation: dict[str, Any]) -> str:
    answers = operation["responses"]
    good = next(status for status in answers if status < "300")
    query = [f"`{p['name']}`" for p in operation.get("parameters", ()) if p["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    sends = [_body(kind, body["schema"]) for kind, body in content.items()] + (
        [f"query {', '.join(query)}"] if query else []
    )
    found = answers[good].get("content", {})
    answer = " or ".join(_body(kind, body["schema"]) for kind, body in found.items()) or "nothing"
    who = ", ".join(operation["x-roles"]) or "anybody"
    if route.endswith("/metrics`"):
        who = "who may open the console, or has the token"
    does = operation["description"].partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    wrong = ", ".join(status for status in sorted(answers) if status >= "400")
    return f"| {route} | {who} | {does} | {'; '.join(sends) or '-'} | {good}: {answer} | {wrong} |"


def _body(kind: str, schema: dict[str, Any]) -> str:
    named = kind_of(schema)
    return named if kind == "application/json" and named != "any" else f"`{kind}`"


def messages(document: dict[str, Any]) -> list[str]:
    """Return a table of the fields of each message; of one that is sent, in the form in which it is sent."""
    forms = document["components"]["schemas"]
    shown = {name: form for name, form in forms.items() if not name.startswith("Sent") and name in _used(forms)}
    shown |= {name.removeprefix("Sent"): form for name, form in forms.items() if name.startswith("Sent")}
    lines = ["## Messages", "", 'JSON. A field without "required" has a default, which the service fills in.', ""]
    for name in sorted(shown):
        form = shown[name]
        about = form.get("description", "").partition("\n\n")[0].replace("\n", " ")
        lines += [f"### {name}", "", *([about, ""] if about else [])]
        if "properties" not in form:
            lines += [f"One of {kind_of(form)}.", ""]
            continue
        lines += ["| field | type | |", "| --- | --- | --- |"]
        for field, kind in form["properties"].items():
            required = "required" if field in form.get("required", ()) else ""
            lines.append(f"| `{field}` | {kind_of(kind)} | {required} |")
        lines.append("")
    return lines


def _used(forms: dict[str, Any]) -> set[str]:
    """Return the names of messages that are not those of the web framework."""
    return {name for name in forms if name not in ("HTTPValidationError", "ValidationError")}


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a value in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].removeprefix("Sent")
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind_of(one) for one in schema[several]))
    if "const" in schema:
        return f"`{schema['const']!r}`".replace("'", '"')
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items") or schema.get("prefixItems", [{}])[0]
        return f"list of {kind_of(items)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind_of(schema['additionalProperties'])}"
    return str(kind)


def problems() -> list[str]:
    """Return the table of all problems."""
    lines = ["## Problems", "", "`type` of a problem document is `urn:fairpremium:problem:` and the code.", ""]
    lines += ["| status | code | title |", "| ---: | --- | --- |"]
    for code, kind in sorted(PROBLEMS.items(), key=lambda item: (item[1].status, item[0])):
        lines.append(f"| {kind.status} | `{code}` | {kind.title.replace('{}', '...')} |")
    return [*lines, ""]


if __name__ == "__main__":
    PAGE.write_text(page(read_document()), encoding="utf-8")
    print(PAGE.name)
