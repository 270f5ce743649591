"""Signatures of functions that pass their arguments on to another function."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def with_arguments_of(base: Callable[..., Any]) -> Callable[[Function], Function]:
    """Let a function that passes ``**settings`` on to `base` show the arguments of `base` and its own by name."""
    shown = inspect.signature(base)

    def decorate(function: Function) -> Function:
        own = inspect.signature(function).parameters
        added = [p for name, p in own.items() if p.kind is p.KEYWORD_ONLY and name not in shown.parameters]
        function.__signature__ = shown.replace(parameters=[*shown.parameters.values(), *added])  # type: ignore[attr-defined]
        return function

    return decorate
