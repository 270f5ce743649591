"""How a function becomes a command: groups of options, ``--json``, and what is printed at the end."""

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from fairpremium.cli._terminal import forget_notes, print_facts, print_notes

_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


class Answer(NamedTuple):
    """What a command returns: the result, what people see of it (facts, or a function that prints), the exit code."""

    result: dict[str, Any]
    shown: dict[str, Any] | Callable[[dict[str, Any]], None]
    exit_code: int = 0


def option_panel(title: str) -> Callable[..., Any]:
    """Return `typer.Option` for options that the help shows under a title of their own."""
    return partial(typer.Option, rich_help_panel=title)


def command(function: Callable[..., Answer | None], before: Callable[[], None] | None = None) -> Callable[..., None]:
    """Make a command of a function that returns its answer.

    - `function`: A parameter that is annotated with a dataclass stands for a group of options: the fields of the
      dataclass are the options, and the function gets an instance. The option ``--json`` is added; a parameter
      `as_json` gets it.
    - `before`: Called first; raises if the command cannot run here.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in groups:
            parameters += inspect.signature(groups[parameter.name]).parameters.values()
            hints |= get_type_hints(groups[parameter.name], include_extras=True)
        elif parameter.name != "as_json":
            parameters.append(parameter)
    parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False))
    hints["as_json"] = _JsonOption

    def run(**options: Any) -> None:
        if before is not None:
            before()
        as_json = options["as_json"] if "as_json" in wanted else options.pop("as_json")
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        forget_notes()
        answer = function(**options)
        print_notes()
        if answer is None:
            return
        if as_json:
            print(json.dumps(plain(answer.result), indent=2, ensure_ascii=False, allow_nan=False))
        elif callable(answer.shown):
            answer.shown(answer.result)
        else:
            print_facts(answer.shown)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    wanted = inspect.signature(function).parameters
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {p.name: hints[p.name] for p in parameters}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in parameters]
    )
    return run


def plain(value: Any) -> Any:
    """Return a value as JSON has it: Python types, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def help_of(command: Callable[..., Any]) -> str:
    """Return a docstring with every paragraph on one line, so that it wraps at the reader's width."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def make_group(sentence: str, commands: dict[str, Callable[..., Any]]) -> typer.Typer:
    """Return commands under one name, such as ``fairpremium keys new``, that explain themselves when called alone.

    - `sentence`: What the commands are for.
    - `commands` (dict): The commands by name, in order.
    """
    group = typer.Typer(help=sentence, add_completion=False)

    @group.callback(invoke_without_command=True)
    def _explain(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help())

    for name, function in commands.items():
        group.command(name, help=help_of(function))(function)
    return group
