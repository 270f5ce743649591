"""The findings at the top of an audit report: what the tables show, in words that a compliance officer understands."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from .drawing import choose_places, format_percent, format_price
from .report import MATERIAL_BALANCE

Tables = Mapping[str, list[dict[str, Any]]]
_NAMED = 3  # most pairs of groups that a sentence names


def findings(
    tables: Tables, head: Mapping[str, Any], model: Mapping[str, Any] | None, panel: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Return the plain-language summary: a heading, a sentence or two, and whether it needs attention.

    What the `panel` answers is answered in the same way.
    """
    is_model, answers = model is not None, {row["id"]: row for row in panel}
    found = [
        _who_pays(tables, head),
        _who_costs(tables, is_model),
        _calibrated(tables, head, is_model),
        _balance(tables, head, answers),
    ]
    found += [_thresholds(tables), _list_proxies(tables, head, answers), _moves(tables, head), _limits(tables)]
    if is_model:
        found += [_proxies(tables, head), _gains(tables, head)]
    found += [_privacy(head), _small(tables)]
    return [finding for finding in found if finding]


def _finding(heading: str, text: str, tone: str = "plain") -> dict[str, str]:
    return {"heading": heading, "text": text, "tone": tone}


def _has_limits(row: Mapping[str, Any], name: str) -> bool:
    """Return whether a number and both limits of it are known."""
    return None not in (row[name], row[f"{name}_low"], row[f"{name}_high"])


def _level(head: Mapping[str, Any]) -> str:
    return f"{100 * head['level']:g}\N{NO-BREAK SPACE}%"


def _who_pays(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    rows = [r for r in tables["group_means"] if r["premium"] is not None]
    if len(rows) < 2:
        return {}
    scale, unit = head["scale"], f" ({head['amounts']})" if head["amounts"] else ""
    errors = [scale * (r["premium_high"] - r["premium_low"]) / 4 for r in rows if _has_limits(r, "premium")]
    places = choose_places([scale * r["premium"] for r in rows], errors)
    means = _listed([f"{r['group']} pays {format_price(scale * r['premium'], places=places)}" for r in rows])
    top, bottom = max(rows, key=itemgetter("premium")), min(rows, key=itemgetter("premium"))
    gap = _pair(tables["demographic_disparity"], top["group"], bottom["group"])
    if gap is None:
        return {}
    by_chance = gap[1] <= 0 <= gap[2]
    chance = "chance alone could explain it" if by_chance else "that is more than chance alone would explain"
    relative = f" ({format_percent(gap[0] / bottom['premium'])} of the lower one)" if bottom["premium"] > 0 else ""
    return _finding(
        "Who pays what",
        f"On average {means}{unit}. The largest difference, {top['group']} over {bottom['group']}, is "
        f"{_with_limits(*gap, scale)} with {_level(head)} confidence{relative}; {chance}. "
        "A difference alone is not unfair: the groups may bring different risks.",
    )


def _with_limits(value: float, low: float, high: float, scale: float) -> str:
    places = choose_places([scale * value], [scale * (high - low) / 4])
    shown = [format_price(scale * number, places=places) for number in (value, low, high)]
    return f"{shown[0]} (between {shown[1]} and {shown[2]})"


def _money(value: float, head: Mapping[str, Any]) -> str:
    return f"{format_price(head['scale'] * value)} {head['amounts']}".strip()


def _pair(rows: list[dict[str, Any]], first: Any, second: Any) -> tuple[float, float, float] | None:
    for row in rows:
        if not _has_limits(row, "difference"):
            continue
        if (row["group"], row["against"]) == (first, second):
            return row["difference"], row["difference_low"], row["difference_high"]
        if (row["group"], row["against"]) == (second, first):
            return -row["difference"], -row["difference_high"], -row["difference_low"]
    return None


def _thresholds(tables: Tables) -> dict[str, str]:
    """Say how many ratios between groups keep the thresholds."""
    rows = tables.get("threshold_check", [])
    if not rows:
        return {}
    low, high = rows[0]["at_least"], rows[0]["at_most"]
    count = Counter(r["answer"] for r in rows)
    beyond = [f"{r['group']} against {r['against']} ({r['quantity']})" for r in rows if r["answer"] == "beyond"]
    named = "; ".join(beyond[:_NAMED]) + (f"; and {len(beyond) - _NAMED} more" if len(beyond) > _NAMED else "")
    text = (
        f"Of {len(rows)} ratios between groups, {count['within']} {'is' if count['within'] == 1 else 'are'} within "
        f"{low:.3g} to {high:.3g} and {len(beyond)} beyond{': ' + named if beyond else ''}."
    )
    if count["cannot tell"]:
        text += f" For {count['cannot tell']} these reports cannot tell; the table says how many would."
    return _finding("Ratios between groups", text, "attention" if beyond else "plain")


def _who_costs(tables: Tables, is_model: bool) -> dict[str, str]:
    rows = [r for r in tables["loss_ratio_gap"] if r["loss_ratio"] is not None and _has_limits(r, "gap")]
    if len(rows) < 2:
        return {}
    ratios = _listed([f"{100 * r['loss_ratio']:.0f} for {r['group']}" for r in rows])
    pay_less = [str(r["group"]) for r in rows if r["gap_low"] > 0]
    pay_more = [str(r["group"]) for r in rows if r["gap_high"] < 0]
    text = f"For every 100 of premium there were losses of {ratios}. "
    if not pay_less and not pay_more:
        text += "The differences are no larger than chance alone would explain: no group is seen to pay for another."
        return _finding("Who costs what", text, "good")
    compared = [
        f"{_listed(names)} {'pays' if len(names) == 1 else 'pay'} {how}"
        for names, how in ((pay_more, "more"), (pay_less, "less"))
        if names
    ]
    meaning = (
        "A discrimination-free premium intends this: it charges nobody for the group, so that all share the cost of "
        "groups which cost more."
        if is_model
        else "A tariff that may not use the attribute cannot always avoid this. People have to decide whether it is "
        "acceptable."
    )
    text += (
        f"For what they cost, compared with everybody, {' and '.join(compared)}, by more than chance alone would "
        f"explain. {meaning}"
    )
    return _finding("Who costs what", text, _tone(True, is_model))


def _calibrated(tables: Tables, head: Mapping[str, Any], is_model: bool) -> dict[str, str]:
    rows = [r for r in tables["calibration"] if r["group"] is not None and _has_limits(r, "difference")]
    if not rows:
        return {}
    off = sum(r["difference_low"] > 0 or r["difference_high"] < 0 for r in rows)
    by_chance = (1 - head["level"]) * len(rows)
    many = off > by_chance + 2 * math.sqrt(by_chance)
    text = (
        f"Of {len(rows)} combinations of group and premium level, losses differ from premiums in {off}. Chance "
        f"alone would give about {by_chance:.0f}: this is {'more' if many else 'no more'} than that."
    )
    if many and is_model:
        text += " Here too a discrimination-free premium cannot fit every group: it is the same for all of them."
    return _finding("Are premiums calibrated?", text, _tone(many, is_model))


def _tone(is_found: bool, is_model: bool) -> str:
    return "good" if not is_found else "plain" if is_model else "attention"


def _balance(tables: Tables, head: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, str]:
    row = tables["balance"][-1]
    if "balance" not in answers:
        return {}
    answer = answers["balance"]
    meaning = {"within": "which is balance", "beyond": "which is not balance", "cannot tell": "which may be balance"}
    return _finding(
        "Do premiums add up to losses?",
        f"Over all policies, premiums are {format_percent(row['ratio'])} of losses "
        f"({format_percent(row['ratio_low'])} to {format_percent(row['ratio_high'])} with {_level(head)} confidence), "
        f"{meaning[answer['verdict']]} to within {format_percent(MATERIAL_BALANCE, 0)}. Expenses and margins are not "
        "in these numbers unless the premium holds them.",
        {"attention": "attention"}.get(answer["tone"], "plain"),
    )


def _proxies(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    measures = {r["measure"]: r for r in tables["discrimination"]}
    shift, explained = measures.get("proxy_shift"), measures.get("proxy_explained")
    if not shift or shift["value"] is None or not explained or explained["value"] is None:
        return {}
    money = _money(shift["value"], head)
    return _finding(
        "What leaving the attribute out would have done",
        "A price that only leaves the attribute out lets other features stand in for it. It would have moved "
        f"premiums by {money} (root mean square), and {format_percent(explained['value'])} of its "
        "variation would have come from guessing the group. The discrimination-free premium averages the groups' "
        "costs with the same weights for everybody, so that this effect is gone.",
    )


def _gains(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    changes = _changes(
        tables["premium_change"], head, lambda r: f"{format_percent(r['pays_more'], 0)} of them pay more"
    )
    if not changes:
        return {}
    return _finding(
        "Who gains and who loses",
        f"Compared with that price, the discrimination-free premium costs, on average, {changes}.",
    )


def _list_proxies(tables: Tables, head: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, str]:
    measures = {r["measure"]: r for r in tables.get("list_discrimination", ()) if r["price"] == "premiums"}
    if not measures:
        return {}
    if measures["proxy_explained"]["value"] is None:
        return _finding("Does this list use proxies?", "It charges everybody the same: no feature counts.", "good")
    explained, shift = measures["proxy_explained"]["value"], measures["proxy_shift"]["value"]
    money = _money(shift, head)
    moves = _changes(tables["premium_change_to_free"], head)
    tone = answers["proxy_effect_of_list"]["tone"]
    would = f" It would charge, on average, {moves}." if moves and tone == "attention" else ""
    return _finding(
        "Does this list use proxies?",
        f"{answers['proxy_effect_of_list']['answer']}. A discrimination-free list with the same total would move "
        f"premiums by {money} (root mean square). What goes with the group that features suggest in these moves is "
        f"worth {format_percent(explained)} of the variation of this list; a list that charges less than the cost also "
        f"moves.{would}",
        {"unclear": "plain"}.get(tone, tone),
    )


def _changes(
    rows: list[dict[str, Any]], head: Mapping[str, Any], aside: Callable[[dict[str, Any]], str] | None = None
) -> str:
    """Say what each group would pay more or less, and in brackets how much that is, or something else about it."""
    known = [r for r in rows if None not in (r["group"], r["change"], r["relative"])]
    scale = head["scale"]
    errors = [scale * (r["change_high"] - r["change_low"]) / 4 for r in known if _has_limits(r, "change")]
    places = choose_places([scale * r["change"] for r in known], errors)
    said = aside or (lambda r: format_percent(abs(r["relative"])))
    changes = [
        f"{r['group']} {format_price(scale * abs(r['change']), places=places)} "
        f"{'more' if r['change'] > 0 else 'less'} ({said(r)})"
        for r in known
    ]
    return _listed(changes) if changes else ""


def _moves(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    rows = tables.get("premium_change_from_current")
    if not rows:
        return {}
    everyone = [r for r in tables["dislocation"] if r["group"] is None]
    first, last = everyone[0], everyone[-1]
    known = first["share"] is not None and last["share"] is not None
    far = (
        f"The change is {last['band']} for {format_percent(last['share'])} of the volume and {first['band']} for "
        f"{format_percent(first['share'])}. "
        if known
        else ""
    )
    moves = _changes(rows, head)
    means = f"On average the new list charges {moves} than the list in force." if moves else ""
    return _finding("From the list in force", (far + means).strip()) if far or means else {}


def _limits(tables: Tables) -> dict[str, str]:
    facts = next(iter(tables.get("limited_change", ())), None)
    if facts is None:
        return {}
    text = (
        f"With the limits, {format_percent(facts['at_cap'])} of the volume would stay at the cap and "
        f"{format_percent(facts['at_floor'])} at the floor. All new premiums are multiplied by "
        f"{facts['multiplier']:.4g} first, so that the total stays."
    )
    back = {r["measure"]: r["given_back"] for r in tables.get("limit_effect", ()) if r["price"] == "limited"}
    given = back.get("proxy_explained")
    if given is not None:
        text += f" The limits give back {format_percent(given)} of the proxy effect that the new list removes."
    return _finding("Limits on the change", text)


def _privacy(head: Mapping[str, Any]) -> dict[str, str]:
    privacy = head["privacy"]
    if privacy is None:
        text = "These numbers were computed from the true attribute. There is no privacy guarantee."
        return _finding("Privacy", text, "attention")
    about = "About " if head["rounded_to"] > 1 else ""
    reports = f"{about}{head['reports']:,} of {head['rows']:,} policies have a report"
    known = [name for name, each in privacy.get("sources", {}).items() if each is None]
    if known:
        text = (
            f"{reports}. Those of {_listed(known)} are the true attribute, without a privacy guarantee; the others are "
            "noisy answers."
        )
        return _finding("Privacy", text, "attention")
    if privacy["collected"]["epsilon"] is None:
        text = f"{reports}. Some report rules a group out: there is no privacy guarantee."
        return _finding("Privacy", text, "attention")
    collected, release = privacy["collected"], privacy["release"]
    kept = ""
    if collected["keep"] is not None:
        share = format_percent(collected["keep"])
        kept = f", which is the truth with probability {share} and else a random other answer"
    added = ""
    if release is not None and release["epsilon"] is not None:
        delta = f", delta {release['delta']:.0e}" if release["delta"] else ""
        added = f" The third party added noise of its own (epsilon {release['epsilon']:.3g}{delta})."
    return _finding(
        "Privacy",
        f"Nobody's attribute was looked at. {reports}: each is a noisy answer{kept}. One answer changes the odds on "
        f"any group by a factor of at most {collected['odds']:.3g} (epsilon {collected['epsilon']:.3g}), so that no "
        f"single answer can be relied on.{added} The numbers here come from all answers together.",
        "good",
    )


def _small(tables: Tables) -> dict[str, str]:
    few = [str(r["group"]) for r in tables["group_means"] if r["note"]]
    if not few:
        return {}
    return _finding(
        "What cannot be said",
        f"For {_listed(few)} there are too few reports: a number would be noise, and none is given.",
        "attention",
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
