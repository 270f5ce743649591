"""Problem documents as answers: the one shape of every error."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fairpremium.parties.protocol import Problem

PROBLEM_TYPE = "application/problem+json"


def answer_problem(problem: Problem, scope: Any) -> JSONResponse:
    """Return the answer that tells of a problem, which stays known as the state of the request."""
    scope["state"]["problem"] = problem.code
    headers = {"Retry-After": "1"} if problem.status in (429, 503) else None
    return JSONResponse(problem.to_dict(), problem.status, media_type=PROBLEM_TYPE, headers=headers)


def add_problem_answers(app: FastAPI) -> None:
    """Let an app answer every error with a problem document."""
    app.add_exception_handler(Problem, lambda request, problem: answer_problem(problem, request.scope))
    app.add_exception_handler(HTTPException, _answer_http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _answer_invalid)  # type: ignore[arg-type]


async def _answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "malformed")
    answer = answer_problem(Problem(code), request.scope)
    if error.headers:
        answer.headers.update(error.headers)
    return answer


async def _answer_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    where = {(e["loc"][0], e["loc"][1]) for e in error.errors() if len(e["loc"]) > 1}
    if ("path", "key") in where:
        return answer_problem(Problem("bad-key"), request.scope)
    code = "bad-query" if any(place == "query" for place, _ in where) else "bad-id"
    return answer_problem(Problem(code), request.scope)
