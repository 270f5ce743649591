"""Every command explains itself: help with an example that parses, a place in the guide, names as in Python."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest
import typer

from fairpremium import DiscriminationFreePricer, LinearModel
from fairpremium.cli._app import _COMMANDS, make_app
from fairpremium.pricing import plan

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "cli.md"
TOP = typer.main.get_command(make_app()).commands
COMMANDS = {
    words: command
    for name, top in TOP.items()
    for words, command in (
        {f"{name} {sub}": c for sub, c in top.commands.items()} if hasattr(top, "commands") else {name: top}
    ).items()
}


def options(command):
    parameters = COMMANDS[command].params
    return {name for p in parameters for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}


def example(command):
    found = re.search(r"Example: fairpremium (.*)", COMMANDS[command].help)
    assert found, f"{command} has no example"
    return shlex.split(found[1])


def test_the_list_of_commands_has_the_first_sentence_of_each():
    """It is shown without loading the commands."""
    for name, (_, sentence) in _COMMANDS.items():
        assert TOP[name].get_short_help_str(300) == sentence


def test_the_commands_are_known():
    assert list(TOP) == [
        "privatize", "fit", "price", "tariff", "audit", "spectrum", "alternatives", "monitor", "card", "record",
        "plan", "demo", "reproduce", "serve", "worker", "backup", "restore", "keys", "account", "study", "collector",
        "insurer", "log",
    ]  # fmt: skip
    parties = [name for name in COMMANDS if " " in name]
    assert parties == [
        "keys new", "keys secret", "keys storage", "keys add", "keys show", "keys rotate", "keys revoke",
        "account add", "account list", "account disable", "account password", "account logins", "account end-login",
        "study create", "study open", "study close", "study begin-epoch", "study withdraw", "study show",
        "collector submit", "collector withdraw", "collector invite", "collector status", "collector page",
        "insurer upload", "insurer fit", "insurer show", "insurer cancel", "insurer fetch", "insurer price",
        "insurer erase",
        "log show", "log verify",
    ]  # fmt: skip


@pytest.mark.parametrize("group", [name for name in TOP if hasattr(TOP[name], "commands")])
def test_a_group_alone_explains_itself(group, call):
    text = call(group).stdout
    assert all(name in text for name in TOP[group].commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(command, call):
    text = " ".join(call(*command.split(), "--help").stdout.split())
    assert f"Example: fairpremium {command}" in text
    call(*example(command), "--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_every_option_a_sentence(command):
    assert "--json" in options(command)
    silent = [p.name for p in COMMANDS[command].params if not getattr(p, "help", None)]
    assert silent == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_guide_shows_every_command_and_every_option(command):
    text = GUIDE.read_text(encoding="utf-8")
    assert f"fairpremium {command}" in text
    absent = [o for o in options(command) if o.startswith("--") and o not in text and o != "--help"]
    assert not absent, f"docs/guide/cli.md says nothing about {absent} of {command}"


def python_names(function):
    return {f"--{name.replace('_', '-')}" for name in inspect.signature(function).parameters}


def test_options_have_the_names_of_the_python_parameters():
    pricer = python_names(DiscriminationFreePricer.__init__) - {"--self", "--classifier"}  # objects, not text
    pricer -= {"--verbose"}  # a terminal always shows a bar
    assert pricer <= options("fit")
    assert "--ridge" in python_names(LinearModel.__init__) & options("fit")
    assert python_names(plan) <= options("plan")
    assert python_names(DiscriminationFreePricer.to_tariff) - {"--self", "--X"} <= options("tariff")


@pytest.mark.parametrize("command", ["privatize", "demo", "collector submit"])
def test_there_is_no_way_to_seed_what_draws_reports(command):
    assert not {o for o in options(command) if re.search(r"seed|rng|random|state", o)}


def test_without_a_command_the_help_is_shown(call):
    assert "Start with: fairpremium demo" in call().stdout
