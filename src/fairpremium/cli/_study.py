"""``fairpremium study``: the operator declares studies, opens and closes them; every party may look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._arguments import NOISE, ChannelOption, EpsilonOption, KeepOption
from fairpremium.cli._channels import channel_text, describe_channel, load_channel
from fairpremium.cli._group import make_group
from fairpremium.cli._options import split_list
from fairpremium.cli._output import JsonOption, print_facts, show
from fairpremium.cli._service import (
    SERVICE,
    KeyFileOption,
    ServiceOption,
    check_ids,
    connect,
    make_message,
    require_service,
)
from fairpremium.privacy import Channel, RandomizedResponse

_PARTIES, _RULES = "Who and what", "Rule 9: noise on what is released"
_IdArgument = Annotated[str, typer.Argument(help="Id of the study: a-z, 0-9, '.', '_', '-'.")]


def create(
    study: _IdArgument,
    spec: Annotated[Path | None, typer.Option(help="JSON file with the whole study, instead of options.")] = None,
    title: Annotated[str | None, typer.Option(help="Title; the id if left out.")] = None,
    groups: Annotated[str | None, typer.Option(help="All groups, such as F,M.", rich_help_panel=NOISE)] = None,
    keep: KeepOption = None,
    epsilon: EpsilonOption = None,
    channel: ChannelOption = None,
    true: Annotated[
        bool, typer.Option("--true", help="Collectors send the true attribute.", rich_help_panel=NOISE)
    ] = False,
    estimated: Annotated[
        Literal["anchor", "likelihood"] | None,
        typer.Option(help="Reports have unknown noise, to be estimated like this.", rich_help_panel=NOISE),
    ] = None,
    collector: Annotated[
        list[str] | None, typer.Option(help="A collector; may be repeated.", rich_help_panel=_PARTIES)
    ] = None,
    insurer: Annotated[
        list[str] | None, typer.Option(help="An insurer; may be repeated.", rich_help_panel=_PARTIES)
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option(help="An allowed family, may be repeated; all.", rich_help_panel=_PARTIES)
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="An allowed model, may be repeated; all.", rich_help_panel=_PARTIES)
    ] = None,
    opens: Annotated[str | None, typer.Option(help="Take reports from then on (ISO 8601).")] = None,
    closes: Annotated[str | None, typer.Option(help="Take no reports from then on (ISO 8601).")] = None,
    release_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of all Gaussian releases together.", rich_help_panel=_RULES)
    ] = None,
    release_delta: Annotated[float | None, typer.Option(help="Its delta.", rich_help_panel=_RULES)] = None,
    fit_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of one Gaussian release.", rich_help_panel=_RULES)
    ] = None,
    randomized_epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of the second randomization.", rich_help_panel=_RULES)
    ] = None,
    no_release_noise: Annotated[
        bool, typer.Option("--no-release-noise", help="Switch rule 9 off.", rich_help_panel=_RULES)
    ] = False,
    open_now: Annotated[bool, typer.Option("--open", help="Open it for reports at once.")] = False,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare a study: groups, channel, parties, rules. It can be declared anew until it is opened.

    Say in one way how reports are drawn: --keep or --epsilon with --groups, --channel, --true, or --estimated.

    Example: fairpremium study create motor --groups F,M --keep 0.8 --collector app --insurer acme --key operator.key
    """
    require_service()
    from fairpremium.parties.clients import Operator
    from fairpremium.parties.protocol import StudySpec

    check_ids(study=study)
    if spec is not None:
        given = [groups, keep, epsilon, channel, estimated, collector, insurer, family, model, title, opens, closes]
        given += [release_epsilon, release_delta, fit_epsilon, randomized_epsilon]
        if true or no_release_noise or any(value for value in given):
            raise ValueError("Give --spec or the options that say the same, not both.")
        if not spec.is_file():
            raise ValueError(f"There is no file {spec}.")
        declared = make_message(StudySpec, spec.read_bytes(), str(spec))
    else:
        release = {
            "epsilon": release_epsilon,
            "delta": release_delta,
            "fit_epsilon": fit_epsilon,
            "randomized_epsilon": randomized_epsilon,
        }
        fields: dict[str, Any] = {
            "title": title or study,
            "attribute": _attribute(split_list(groups, "--groups"), keep, epsilon, channel, true, estimated),
            "collectors": collector or [],
            "insurers": insurer or [],
            "families": family,
            "models": model,
            "opens": opens,
            "closes": closes,
            "release": {name: value for name, value in release.items() if value is not None},
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        if no_release_noise:
            if fields["release"]:
                raise ValueError("--no-release-noise switches off what the other options of rule 9 would set.")
            fields["release"] = None
        declared = make_message(StudySpec, fields)
    with connect(Operator, service, key) as operator:
        seen = operator.put_study(study, declared)
        if open_now:
            seen = operator.set_state(study, "open")
    show(_result(seen), as_json, _render)


def _attribute(
    groups: list[str] | None,
    keep: float | None,
    epsilon: float | None,
    channel: Path | None,
    true: bool,
    estimated: str | None,
) -> dict[str, Any]:
    """Return how reports come about, as JSON has it."""
    ways = {
        "--keep": keep is not None,
        "--epsilon": epsilon is not None,
        "--channel": channel is not None,
        "--true": true,
        "--estimated": estimated is not None,
    }
    named = [name for name, is_given in ways.items() if is_given]
    if len(named) != 1:
        got = " and ".join(named) or "none of them"
        raise ValueError(f"Say in one way how reports are drawn: {', '.join(ways)}. Got {got}.")
    if channel is not None:
        return {"kind": "known", "channel": load_channel(channel).channel.descriptor()}
    if groups is None:
        raise ValueError(f"{named[0]} needs --groups, all values of the attribute, such as F,M.")
    if true:
        return {"kind": "true", "groups": groups}
    if estimated is not None:
        return {"kind": "estimated", "groups": groups, "method": estimated}
    return {"kind": "known", "channel": RandomizedResponse(groups, keep=keep, epsilon=epsilon).descriptor()}


def open_study(
    study: _IdArgument, service: ServiceOption = SERVICE, key: KeyFileOption = None, as_json: JsonOption = False
) -> None:
    """Take reports from now on. What was declared is then fixed.

    Example: fairpremium study open motor --key operator.key
    """
    _set_state(study, "open", service, key, as_json)


def close_study(
    study: _IdArgument, service: ServiceOption = SERVICE, key: KeyFileOption = None, as_json: JsonOption = False
) -> None:
    """Take no more reports. Insurers can still fit.

    Example: fairpremium study close motor --key operator.key
    """
    _set_state(study, "close", service, key, as_json)


def _set_state(study: str, state: str, service: str, key: Path | None, as_json: bool) -> None:
    require_service()
    from fairpremium.parties.clients import Operator

    check_ids(study=study)
    with connect(Operator, service, key) as operator:
        seen = operator.set_state(study, state)
    show(_result(seen), as_json, _render)


def show_study(
    study: Annotated[str | None, typer.Argument(help="Id of the study; all of yours if left out.")] = None,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a study as your party sees it, or all that it takes part in.

    Example: fairpremium study show motor --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Client

    if study is not None:
        check_ids(study=study)
    with connect(Client, service, key) as client:
        path = "/v1/studies" if study is None else f"/v1/studies/{study}"
        seen = client.send("GET", path).json()
    if study is not None:
        show(seen, as_json, _render)
    else:
        show({"studies": seen}, as_json, _render_all)


def _result(seen: Any) -> dict[str, Any]:
    return dict(json.loads(seen.model_dump_json()))


def _render_all(result: dict[str, Any]) -> None:
    for n, study in enumerate(result["studies"]):
        if n:
            print()
        _render(study)
    if not result["studies"]:
        print("None.")


def _render(study: dict[str, Any]) -> None:
    spec = study.get("spec", study)
    facts = {
        "Study": f"{study['id']} ({study['state']}): {study['title']}",
        "Groups": ", ".join(str(group) for group in _groups(study["attribute"])),
        "Reports": _how(study["attribute"]),
        "Collectors": ", ".join(spec.get("collectors", [])) or None,
        "Insurers": ", ".join(spec.get("insurers", [])) or None,
        "Families": ", ".join(spec.get("families", [])) or None,
        "Models": ", ".join(spec.get("models", [])) or None,
        "Received": _count(study, "reports"),
        "Accepted": _count(study, "accepted"),
        "Fits": str(study["fits"]) if "fits" in study else None,
        "Fits left": str(study["fits_left"]) if "fits_left" in study else None,
        "Noise": _noise(spec["release"]) if "release" in spec else None,
    }
    print_facts(facts)


def _groups(attribute: dict[str, Any]) -> list[Any]:
    if attribute["kind"] == "known":
        return list(Channel.from_descriptor(attribute["channel"]).groups)
    return list(attribute["groups"])


def _how(attribute: dict[str, Any]) -> str:
    if attribute["kind"] == "true":
        return "the true attribute"
    if attribute["kind"] == "estimated":
        return f"with unknown noise, estimated by {attribute['method']}"
    return channel_text(describe_channel(Channel.from_descriptor(attribute["channel"])) or {})


def _count(study: dict[str, Any], name: str) -> str | None:
    if name not in study:
        return None
    return "few or none" if study[name] is None else f"about {study[name]:,} reports"


def _noise(release: dict[str, Any] | None) -> str:
    if release is None:
        return "rule 9 is off"
    return (
        f"epsilon {release['epsilon']:g} at delta {release['delta']:g} for all Gaussian releases, "
        f"{release['fit_epsilon']:g} for each; second randomization epsilon {release['randomized_epsilon']:g}"
    )


study = make_group(
    "Studies: what is learned about which groups, by whom, under which rules.",
    {"create": create, "open": open_study, "close": close_study, "show": show_study},
)
