"""``fairpremium study``: the operator declares studies, opens and closes them; every party may look."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._channel_file import (
    ChannelOption,
    EpsilonOption,
    KeepOption,
    channel_text,
    describe_channel,
    load_channel,
    noise_option,
)
from fairpremium.cli._command import Answer, make_group, option_panel
from fairpremium.cli._parsing import split_list, split_pairs
from fairpremium.cli._terminal import print_facts
from fairpremium.cli.parties._service import Connection, check_ids, make_message, message_fields, party_command
from fairpremium.cli.tables import require_file
from fairpremium.privacy import Channel, RandomizedResponse

_party_option, _rule_option = option_panel("Who and what"), option_panel("Rule 9: noise on what is released")
_date_option = option_panel("How long the service keeps what it has")
_IdArgument = Annotated[str, typer.Argument(help="Id of the study: a-z, 0-9, '.', '_', '-'.")]


@party_command
def create(
    study: _IdArgument,
    *,
    spec: Annotated[Path | None, typer.Option(help="JSON file with the whole study, instead of options.")] = None,
    title: Annotated[str | None, typer.Option(help="Title; the id if left out.")] = None,
    groups: Annotated[str | None, noise_option(help="All groups, such as F,M.")] = None,
    attribute: Annotated[
        list[str] | None,
        noise_option(help="Of several attributes, one and its groups or channel: sex=F,M or sex=sex.channel.json."),
    ] = None,
    keep: KeepOption = None,
    epsilon: EpsilonOption = None,
    channel: ChannelOption = None,
    true: Annotated[bool, noise_option("--true", help="Collectors send the true attribute.")] = False,
    estimated: Annotated[
        Literal["anchor", "likelihood"] | None,
        noise_option(help="Reports have unknown noise, to be estimated like this."),
    ] = None,
    anchor_group: Annotated[
        str | None, noise_option(help="With --estimated anchor: the group that some features give away with certainty.")
    ] = None,
    anchor_share: Annotated[
        float | None, noise_option(help="With --estimated anchor: the share of the rows that have such features.")
    ] = None,
    collector: Annotated[list[str] | None, _party_option(help="A collector; may be repeated.")] = None,
    insurer: Annotated[list[str] | None, _party_option(help="An insurer; may be repeated.")] = None,
    family: Annotated[list[str] | None, _party_option(help="An allowed family, may be repeated; all.")] = None,
    model: Annotated[list[str] | None, _party_option(help="An allowed model, may be repeated; all.")] = None,
    question: Annotated[
        Path | None, typer.Option(help="JSON file with the texts of the page on which invited people answer.")
    ] = None,
    opens: Annotated[str | None, typer.Option(help="Take reports from then on (ISO 8601).")] = None,
    closes: Annotated[str | None, typer.Option(help="Take no reports from then on (ISO 8601).")] = None,
    reports_until: Annotated[str | None, _date_option(help="Erase all reports then (ISO 8601).")] = None,
    portfolios_days: Annotated[
        int | None, _date_option(help="Erase a portfolio and its bundles so many days after it was declared.")
    ] = None,
    bundles_days: Annotated[int | None, _date_option(help="Erase a bundle so many days after its fit ended.")] = None,
    epoch_days: Annotated[
        float | None, _rule_option(help="How long an epoch lasts, in which all comes from one snapshot; 30.")
    ] = None,
    release_epsilon: Annotated[float | None, _rule_option(help="Epsilon of all releases to an insurer.")] = None,
    release_delta: Annotated[float | None, _rule_option(help="Its delta.")] = None,
    fit_epsilon: Annotated[float | None, _rule_option(help="Epsilon of one Gaussian release.")] = None,
    randomized_epsilon: Annotated[
        float | None, _rule_option(help="Epsilon of the second randomization of an attribute, for each epoch.")
    ] = None,
    no_release_noise: Annotated[bool, _rule_option("--no-release-noise", help="Switch rule 9 off.")] = False,
    open_now: Annotated[bool, typer.Option("--open", help="Open it for reports at once.")] = False,
    connection: Connection,
) -> Answer:
    """Declare a study: groups, channel, parties, rules. It can be declared anew until it is opened.

    Say in one way how reports are drawn: --keep or --epsilon with --groups, --channel, --true, or --estimated. Several
    attributes are declared by --attribute, once for each; --keep or --epsilon then holds for each by itself.

    Example: fairpremium study create motor --groups F,M --keep 0.8 --collector app --insurer acme --key operator.key
    """
    from fairpremium.parties.clients import Operator
    from fairpremium.parties.protocol import StudySpec

    check_ids(study=study)
    release = {
        "epsilon": release_epsilon,
        "delta": release_delta,
        "fit_epsilon": fit_epsilon,
        "randomized_epsilon": randomized_epsilon,
    }
    release = {name: value for name, value in release.items() if value is not None}
    if spec is not None:
        given = [groups, keep, epsilon, channel, estimated, collector, insurer, family, model, title, opens, closes]
        given += [anchor_group, anchor_share, question, attribute, epoch_days]
        given += [reports_until, portfolios_days, bundles_days]
        if true or no_release_noise or release or any(given):
            raise ValueError("Give --spec or the options that say the same, not both.")
        declared = make_message(StudySpec, require_file(spec).read_bytes(), str(spec))
    else:
        fields: dict[str, Any] = {
            "title": title or study,
            "attribute": _several(
                attribute,
                keep,
                epsilon,
                {
                    "--groups": groups,
                    "--channel": channel,
                    "--true": true or None,
                    "--estimated": estimated,
                    "--question": question,
                },
            )
            if attribute
            else _attribute(
                split_list(groups, "--groups"), keep, epsilon, channel, true, estimated, (anchor_group, anchor_share)
            ),
            "collectors": collector or [],
            "insurers": insurer or [],
            "families": family,
            "models": model,
            "question": None if question is None else _question(question),
            "opens": opens,
            "closes": closes,
            "epoch_seconds": None if epoch_days is None else round(86_400 * epoch_days),
            "release": release,
            "retention": _retention(
                reports_until=reports_until, portfolios_days=portfolios_days, bundles_days=bundles_days
            ),
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        if no_release_noise:
            if release:
                raise ValueError("--no-release-noise switches off what the other options of rule 9 would set.")
            fields["release"] = None
        declared = make_message(StudySpec, fields)
    with connection.open(Operator) as operator:
        seen = operator.put_study(study, declared)
        if open_now:
            seen = operator.set_state(study, "open")
    return Answer(message_fields(seen), _facts(message_fields(seen)))


def _retention(**dates: str | int | None) -> dict[str, Any] | None:
    """Return what is kept for a time only, or None."""
    return {name: value for name, value in dates.items() if value is not None} or None


def _question(path: Path) -> dict[str, Any]:
    """Return the texts of the page, as JSON has them."""
    from fairpremium.parties.protocol import Question

    return message_fields(make_message(Question, require_file(path).read_bytes(), str(path)))


def _several(
    attributes: list[str], keep: float | None, epsilon: float | None, others: dict[str, Any]
) -> dict[str, Any]:
    """Return how reports of several attributes come about, as JSON has it."""
    wrong = [name for name, value in others.items() if value is not None]
    if wrong:
        raise ValueError(
            f"Got {wrong[0]} with --attribute, but expected groups or a channel file for each attribute. "
            + ("The page asks for one attribute: use a study of its own." if wrong == ["--question"] else "")
        )
    declared = split_pairs(attributes, "--attribute", "sex=F,M")
    if len(declared) < 2:
        raise ValueError("Got --attribute once, but expected several. One attribute is declared by --groups.")
    needs_noise = any(not text.endswith(".json") for text in declared.values())
    if needs_noise == (keep is None and epsilon is None):
        raise ValueError(
            "Got groups without --keep or --epsilon, but expected the noise of their reports."
            if needs_noise
            else "Got --keep or --epsilon with channel files only, but expected one way to say how reports are drawn."
        )
    found = []
    for name, text in declared.items():
        if text.endswith(".json"):
            channel = load_channel(Path(text)).channel
        else:
            channel = RandomizedResponse(split_list(text, "--attribute") or [], keep=keep, epsilon=epsilon)
        found.append({"name": name, "channel": channel.descriptor()})
    return {"kind": "several", "attributes": found}


def _attribute(
    groups: list[str] | None,
    keep: float | None,
    epsilon: float | None,
    channel: Path | None,
    true: bool,
    estimated: str | None,
    anchor: tuple[str | None, float | None],
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
        raise ValueError(f"Got {got}, but expected one way to say how reports are drawn: {', '.join(ways)}.")
    if estimated != "anchor" and anchor != (None, None):
        raise ValueError("--anchor-group and --anchor-share belong to --estimated anchor.")
    if channel is not None:
        return {"kind": "known", "channel": load_channel(channel).channel.descriptor()}
    if groups is None:
        raise ValueError(f"{named[0]} needs --groups, all values of the attribute, such as F,M.")
    if true:
        return {"kind": "true", "groups": groups}
    if estimated == "anchor":
        group, share = anchor
        if group is None or share is None:
            raise ValueError(
                "--estimated anchor needs --anchor-group and --anchor-share, the group that some features give away "
                "with certainty and the share of the rows that have them: without an anchor no fit tells the noise."
            )
        declared = {"group": group, "share": share}
        return {"kind": "estimated", "groups": groups, "method": estimated, "anchor": declared}
    if estimated is not None:
        return {"kind": "estimated", "groups": groups, "method": estimated}
    return {"kind": "known", "channel": RandomizedResponse(groups, keep=keep, epsilon=epsilon).descriptor()}


@party_command
def open_study(study: _IdArgument, connection: Connection) -> Answer:
    """Take reports from now on. What was declared is then fixed.

    Example: fairpremium study open motor --key operator.key
    """
    return _set_state(study, "open", connection)


@party_command
def close_study(study: _IdArgument, connection: Connection) -> Answer:
    """Take no more reports. Insurers can still fit.

    Example: fairpremium study close motor --key operator.key
    """
    return _set_state(study, "close", connection)


@party_command
def begin_epoch(study: _IdArgument, connection: Connection) -> Answer:
    """Take a new snapshot of the reports; until the next one, all that is released comes from it.

    The first fit after the end of an epoch does the same. Every epoch costs each insurer that asks for a fit in it the
    epsilon of the second randomization anew.

    Example: fairpremium study begin-epoch motor --key operator.key
    """
    from fairpremium.parties.clients import Operator

    check_ids(study=study)
    with connection.open(Operator) as operator:
        seen = message_fields(operator.begin_epoch(study))
    return Answer(seen, _facts(seen))


@party_command
def withdraw(
    study: _IdArgument,
    keys: Annotated[list[str], typer.Argument(help="Keys of policies, 32 hexadecimal digits each.")],
    *,
    now: Annotated[
        bool, typer.Option("--now", help="At once: cancels fits that have not ended and begins an epoch, visibly.")
    ] = False,
    connection: Connection,
) -> Answer:
    """Withdraw the reports of policies, whoever sent them. The next epoch begins without them.

    Until then insurers see no difference. With --now the present epoch ends at once: insurers see that, and may
    conclude that somebody has withdrawn a report. Only collectors and insurers can make keys from policy numbers.

    Example: fairpremium study withdraw motor 7d1c0e0a5b7f4a3c9f6e2d8b1a4c5e70 --key operator.key
    """
    from fairpremium.parties.clients import Operator

    check_ids(study=study)
    if not all(re.fullmatch(r"[0-9a-f]{32}", key) for key in keys):
        raise ValueError("Got a key of another form, but expected 32 hexadecimal digits, in lower case.")
    with connection.open(Operator) as operator:
        for i, key in enumerate(keys, 1):
            operator.withdraw(study, bytes.fromhex(key), now=now and i == len(keys))
    when = "now" if now else "with the next epoch"
    facts = {"Study": study, "Withdrawn": f"{len(keys):,} keys, {when}"}
    return Answer({"study": study, "keys": len(keys), "now": now}, facts)


def _set_state(study: str, state: str, connection: Connection) -> Answer:
    from fairpremium.parties.clients import Operator

    check_ids(study=study)
    with connection.open(Operator) as operator:
        seen = operator.set_state(study, state)
    return Answer(message_fields(seen), _facts(message_fields(seen)))


@party_command
def show_study(
    connection: Connection,
    study: Annotated[str | None, typer.Argument(help="Id of the study; all of yours if left out.")] = None,
) -> Answer:
    """Show a study as your party sees it, or all that it takes part in.

    Example: fairpremium study show motor --key insurer.key
    """
    from fairpremium.parties.clients import Client

    if study is not None:
        check_ids(study=study)
    with connection.open(Client) as client:
        path = "/v1/studies" if study is None else f"/v1/studies/{study}"
        seen = client.send("GET", path).json()
    return Answer({"studies": seen}, _render_all) if study is None else Answer(seen, _facts(seen))


def _render_all(result: dict[str, Any]) -> None:
    for n, study in enumerate(result["studies"]):
        if n:
            print()
        print_facts(_facts(study))
    if not result["studies"]:
        print("None.")


def _facts(study: dict[str, Any]) -> dict[str, Any]:
    spec = study.get("spec", study)
    listed = {
        name.capitalize(): ", ".join(spec.get(name, [])) or None
        for name in ("collectors", "insurers", "families", "models")
    }
    return {
        "Study": f"{study['id']} ({study['state']}): {study['title']}",
        **_attributes(study["attribute"]),
        **listed,
        "Question": _languages(spec.get("question")),
        "Kept": _kept(spec.get("retention")),
        "Epoch": _epoch(study),
        "Received": _received(study),
        "Accepted": _count(study, "accepted"),
        **{
            f"Accepted {name}": _count({name: count}, name)
            for name, count in (study.get("accepted_by_attribute") or {}).items()
        },
        "Fits": study.get("fits"),
        "Fits left": study.get("fits_left"),
        "Spent": _spent(study.get("spent")),
        "Noise": _noise(spec["release"]) if "release" in spec else None,
    }


def _kept(retention: dict[str, Any] | None) -> str | None:
    """Return how long the service keeps what it has, in words."""
    dates = {name: value for name, value in (retention or {}).items() if value is not None}
    words = {
        "reports_until": "reports until {}",
        "portfolios_days": "portfolios {} days",
        "bundles_days": "bundles {} days",
    }
    return ", ".join(words[name].format(value) for name, value in dates.items()) or None


def _attributes(attribute: dict[str, Any]) -> dict[str, str]:
    """Return the groups and the channel, of each of several attributes; their epsilons add up."""
    if attribute["kind"] != "several":
        return {"Groups": ", ".join(str(group) for group in _groups(attribute)), "Reports": _how(attribute)}
    facts, total = {}, 0.0
    for one in attribute["attributes"]:
        channel = Channel.from_descriptor(one["channel"])
        total += channel.epsilon
        groups = ", ".join(map(str, channel.groups))
        facts[f"Attribute {one['name']}"] = f"{groups}: {channel_text(describe_channel(channel) or {})}"
    return {**facts, "Reports": f"epsilon {total:.4g} of a person who reports all attributes"}


def _epoch(study: dict[str, Any]) -> str | None:
    """Say which epoch it is, and until when."""
    newest = study["epoch"] if "epoch" in study else (study.get("epochs") or [None])[-1]
    if newest is None:
        return "none yet, the first fit begins one" if "accepted" not in study else None
    return f"{newest['number']}, began {newest['closed'][:16]}, ends {newest['ends'][:16]} UTC"


def _received(study: dict[str, Any]) -> str | None:
    """Say how many reports were taken until the newest snapshot, as it was released."""
    if not study.get("epochs"):
        return None
    newest = study["epochs"][-1]
    if not newest["counted"]:
        return f"told when the first fit of epoch {newest['number']} runs"
    error = f" (standard error {newest['standard_error']:.0f})" if newest["standard_error"] else ""
    return f"{_count(newest, 'reports')} taken until epoch {newest['number']}{error}"


def _spent(spent: dict[str, Any] | None) -> str | None:
    """Say what releases have cost, together and for each of several attributes."""
    if spent is None:
        return None
    each = ", ".join(f"{name} {epsilon:.3g}" for name, epsilon in (spent["by_attribute"] or {}).items())
    total = spent["with_other_studies"]
    others = f"; {total:.3g} with other studies of the same collectors" if total and total > spent["epsilon"] else ""
    if total is None:
        others = "; without bound with other studies of the same collectors, of which one has no noise"
    return f"epsilon {spent['epsilon']:.3g}" + (f" ({each})" if each else "") + others


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


def _languages(question: dict[str, Any] | None) -> str | None:
    if not question:
        return None
    return f"on the page, for {question['collector']}, in {', '.join(question['texts'])}"


def _count(study: dict[str, Any], name: str) -> str | None:
    if name not in study:
        return None
    return "few or none" if study[name] is None else f"about {study[name]:,} reports"


def _noise(release: dict[str, Any] | None) -> str:
    if release is None:
        return "rule 9 is off"
    return (
        f"epsilon {release['epsilon']:g} at delta {release['delta']:g} for all releases to an insurer, Gaussian ones "
        f"{release['fit_epsilon']:g} each; second randomization epsilon {release['randomized_epsilon']:g} in each epoch"
    )


study = make_group(
    "Studies: what is learned about which groups, by whom, under which rules.",
    {
        "create": create,
        "open": open_study,
        "close": close_study,
        "begin-epoch": begin_epoch,
        "withdraw": withdraw,
        "show": show_study,
    },
)
