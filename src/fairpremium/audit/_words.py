"""The words of a report: what a compliance officer reads first, what each table says, what is not guaranteed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairpremium.audit._plots import format_price

PRICE_NAMES = {
    "premiums": "premium",
    "best_estimate": "best estimate",
    "unaware": "unaware",
    "discrimination_free": "discrimination-free",
}
Tables = Mapping[str, list[dict[str, Any]]]
Column = dict[str, Any]


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share as per cent.

    Examples
    --------
    >>> percent(0.1234).split(), percent(0.0004).split(), percent(None)
    (['12.3', '%'], ['0.04', '%'], '')
    """
    if value is None or not math.isfinite(value):
        return ""
    scaled = 100 * value
    if scaled and abs(scaled) < 0.1:
        return f"{scaled:.1g}\N{NO-BREAK SPACE}%"
    return f"{scaled:.{digits}f}\N{NO-BREAK SPACE}%"


# --- findings: the first screen ---


def findings(tables: Tables, head: Mapping[str, Any], model: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return the plain-language summary: a heading, a sentence or two, and whether it needs attention."""
    is_model = model is not None
    found = [
        _who_pays(tables, head),
        _who_costs(tables, head, is_model),
        _calibrated(tables, head, is_model),
        _balance(tables, head),
    ]
    if is_model:
        found += [_proxies(tables, head), _gains(tables, head)]
    found += [_privacy(head), _small(tables)]
    return [finding for finding in found if finding]


def _finding(heading: str, text: str, tone: str = "plain") -> dict[str, str]:
    return {"heading": heading, "text": text, "tone": tone}


def _money(value: float | None, head: Mapping[str, Any]) -> str:
    text = format_price(value)
    return f"{text} {head['unit']}" if head["unit"] else text


def _interval(low: float, high: float, head: Mapping[str, Any]) -> str:
    return f"between {format_price(low)} and {format_price(high)} with {_level(head)} confidence"


def _level(head: Mapping[str, Any]) -> str:
    return f"{100 * head['level']:g}\N{NO-BREAK SPACE}%"


def _who_pays(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    rows = [r for r in tables["group_means"] if r["premium"] is not None]
    if len(rows) < 2:
        return {}
    means = _listed([f"{r['group']} pays {format_price(r['premium'])}" for r in rows])
    unit = f" ({head['unit']})" if head["unit"] else ""
    top, bottom = max(rows, key=_premium), min(rows, key=_premium)
    gap = _pair(tables["demographic_disparity"], top["group"], bottom["group"])
    if gap is None:
        return {}
    return _finding(
        "Who pays what",
        f"On average {means}{unit}. The largest difference, {top['group']} over {bottom['group']}, is "
        f"{format_price(gap[0])} ({_interval(gap[1], gap[2], head)}), or {percent(gap[0] / bottom['premium'])}; "
        f"{_chance(gap[1], gap[2])}. A difference alone is not unfair: the groups may bring different risks.",
    )


def _premium(row: Mapping[str, Any]) -> float:
    return float(row["premium"])


def _pair(rows: list[dict[str, Any]], first: Any, second: Any) -> tuple[float, float, float] | None:
    for row in rows:
        if row["difference"] is None:
            continue
        if (row["group"], row["against"]) == (first, second):
            return row["difference"], row["difference_low"], row["difference_high"]
        if (row["group"], row["against"]) == (second, first):
            return -row["difference"], -row["difference_high"], -row["difference_low"]
    return None


def _chance(low: float, high: float) -> str:
    if low <= 0 <= high:
        return "chance alone could explain it"
    return "that is more than chance alone would explain"


def _who_costs(tables: Tables, head: Mapping[str, Any], is_model: bool) -> dict[str, str]:
    rows = [r for r in tables["loss_ratio_gap"] if r["loss_ratio"] is not None]
    if len(rows) < 2:
        return {}
    ratios = _listed([f"{format_price(100 * r['loss_ratio'])} for {r['group']}" for r in rows])
    dear = [str(r["group"]) for r in rows if r["gap_low"] > 0]
    cheap = [str(r["group"]) for r in rows if r["gap_high"] < 0]
    text = f"For every 100 of premium there were losses of {ratios}. "
    if not dear and not cheap:
        text += "The differences are no larger than chance alone would explain: no group is seen to pay for another."
        return _finding("Who costs what", text, "good")
    parts = []
    if cheap:
        parts.append(f"{_listed(cheap)} {_verb(cheap, 'pays more than it costs', 'pay more than they cost')}")
    if dear:
        parts.append(f"{_listed(dear)} {_verb(dear, 'pays less than it costs', 'pay less than they cost')}")
    text += f"Compared with everybody, {' and '.join(parts)}, by more than chance alone would explain."
    if is_model:
        text += (
            " A discrimination-free premium intends this: it charges nobody for the group, so that groups which cost "
            "more are carried by all."
        )
    else:
        text += " A tariff that may not use the attribute cannot always avoid this; what to make of it is a decision."
    return _finding("Who costs what", text, _tone(True, is_model))


def _verb(names: list[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _calibrated(tables: Tables, head: Mapping[str, Any], is_model: bool) -> dict[str, str]:
    rows = [r for r in tables["calibration"] if r["difference"] is not None and r["group"] is not None]
    if not rows:
        return {}
    off = [r for r in rows if r["difference_low"] > 0 or r["difference_high"] < 0]
    by_chance = (1 - head["level"]) * len(rows)
    many = len(off) > by_chance + 2 * math.sqrt(by_chance)
    text = (
        f"Of {len(rows)} combinations of group and premium level, losses differ from premiums in {len(off)}. Chance "
        f"alone would give about {by_chance:.0f}: this is {'more' if many else 'no more'} than that."
    )
    if many and is_model:
        text += " Here too a discrimination-free premium cannot fit every group: it is the same for all of them."
    return _finding("Does a premium cost what it promises?", text, _tone(many, is_model))


def _tone(is_found: bool, is_model: bool) -> str:
    return "good" if not is_found else "plain" if is_model else "attention"


def _balance(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    rows = tables["balance"]
    row = rows[-1]
    if row["ratio"] is None or row["ratio_low"] is None:
        return {}
    inside = row["ratio_low"] <= 1 <= row["ratio_high"]
    return _finding(
        "Do premiums add up to losses?",
        f"Over all policies, premiums are {percent(row['ratio'])} of losses ({percent(row['ratio_low'])} to "
        f"{percent(row['ratio_high'])} with {_level(head)} confidence), "
        + ("which is compatible with balance." if inside else "which is not balance.")
        + " Expenses and margins are not in these numbers unless the premium holds them.",
        "plain" if inside else "attention",
    )


def _proxies(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    measures = {r["measure"]: r for r in tables["discrimination"]}
    shift, explained = measures.get("proxy_shift"), measures.get("proxy_explained")
    if not shift or shift["value"] is None or not explained:
        return {}
    return _finding(
        "What leaving the attribute out would have done",
        "A price that merely leaves the attribute out lets other features stand in for it. It would have moved "
        f"premiums by {_money(shift['value'], head)} (root mean square), and {percent(explained['value'])} of its "
        "variation would have come from guessing the group. The discrimination-free premium averages the groups' "
        "costs with the same weights for everybody, so that this part is gone.",
    )


def _gains(tables: Tables, head: Mapping[str, Any]) -> dict[str, str]:
    rows = [r for r in tables["premium_change"] if r["group"] is not None and r["change"] is not None]
    if not rows:
        return {}
    parts = [
        f"{r['group']} {format_price(abs(r['change']))} {'more' if r['change'] > 0 else 'less'} "
        f"({percent(r['pays_more'], 0)} of them pay more)"
        for r in rows
    ]
    return _finding(
        "Who gains and who loses",
        f"Compared with that price, the discrimination-free premium costs, on average, {_listed(parts)}.",
    )


def _privacy(head: Mapping[str, Any]) -> dict[str, str]:
    privacy = head["privacy"]
    if privacy is None:
        return _finding(
            "Privacy",
            "These numbers were computed from the true attribute. There is no privacy guarantee.",
            "attention",
        )
    reports = f"{head['rows'] - head['missing_reports']:,} of {head['rows']:,} policies have a report"
    if privacy["epsilon"] is None:
        return _finding(
            "Privacy", f"{reports}. Some report rules a group out: there is no privacy guarantee.", "attention"
        )
    kept = (
        ""
        if privacy["keep"] is None
        else f", which is the truth with probability {percent(privacy['keep'])} and else a random other answer"
    )
    return _finding(
        "Privacy",
        f"Nobody's attribute was looked at. {reports}: each is a noisy answer{kept}. One answer changes the odds on "
        f"any group by a factor of at most {privacy['odds']:.3g} (epsilon {privacy['epsilon']:.3g}), so that no "
        "single one can be relied on; the numbers here come from all of them together.",
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


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# --- sections: title, what to look for, columns ---


def _column(label: str, key: str, form: str = "price", limits: bool = False) -> Column:
    return {"label": label, "key": key, "form": form, "limits": limits}


_GROUP = _column("Group", "group", "group")
_SECTIONS: dict[str, tuple[str, str, list[Column]]] = {
    "price_comparison": (
        "Three prices by risk class",
        "Within a class all prices are averaged over the same policies. The best estimate is the expected cost in "
        "one group and uses the attribute; the unaware price leaves it out, and proxies bring it back; the "
        "discrimination-free price averages the best estimates with the same weights for everybody.",
        [],
    ),
    "prices_by_group": (
        "Three prices by group",
        "What the members of each group would pay on average. If everybody were charged the best estimate of the "
        "own group, each group would pay for itself.",
        [_column("Price", "price", "price_name"), _GROUP, _column("Mean", "mean", limits=True)],
    ),
    "discrimination": (
        "Direct and proxy discrimination of the unaware price",
        "How far a price that merely leaves the attribute out still depends on it. The first three are shares of "
        "the price's variation, the other two amounts of money.",
        [_column("Measure", "measure", "measure"), _column("Value", "value", "measure_value", limits=True)],
    ),
    "premium_change": (
        "Who gains and who loses: from unaware to discrimination-free",
        "Mean change of the premium, and the share of policies whose premium goes up.",
        [
            _GROUP,
            _column("Unaware", "old"),
            _column("Discrimination-free", "new"),
            _column("Change", "change", limits=True),
            _column("Pay more", "pays_more", "percent", limits=True),
        ],
    ),
    "premium_change_by_decile": (
        "Who gains and who loses, by premium level",
        "Policies are ordered by the unaware price and divided into tenths.",
        [
            _column("Tenth", "bin", "text"),
            _GROUP,
            _column("Change", "change", limits=True),
            _column("Pay more", "pays_more", "percent"),
        ],
    ),
    "premium_change_by_class": (
        "Who gains and who loses, by risk class",
        "The same within each class.",
        [
            _column("Class", "risk_class", "text"),
            _GROUP,
            _column("Change", "change", limits=True),
            _column("Pay more", "pays_more", "percent"),
        ],
    ),
    "adverse_selection": (
        "If a competitor charged the best estimate",
        "The worst case: everybody whose own group is cheaper leaves. What stays pays less than it costs, which is "
        "what a fair price is exposed to where others may discriminate.",
        [
            _GROUP,
            _column("Stay", "stays", "percent", limits=True),
            _column("Profit today", "profit_now", limits=True),
            _column("Profit after", "profit", limits=True),
        ],
    ),
    "group_means": (
        "Premium and loss by group",
        "Mean premium and mean loss of each group, estimated from the noisy reports.",
        [
            _GROUP,
            _column("Share", "share", "percent"),
            _column("Premium", "premium", limits=True),
            _column("Loss", "loss", limits=True),
        ],
    ),
    "group_means_by_class": (
        "Premium and loss by class and group",
        "The same within each class: differences between groups here are not due to the class.",
        [
            _column("Class", "risk_class", "text"),
            _GROUP,
            _column("Share", "share", "percent"),
            _column("Premium", "premium", limits=True),
            _column("Loss", "loss", limits=True),
        ],
    ),
    "demographic_disparity": (
        "Difference of premiums between groups",
        "Zero for all would be demographic parity. A difference is not unfair by itself: it may follow from "
        "features that say something about the cost.",
        [
            _GROUP,
            _column("Against", "against", "group"),
            _column("Difference", "difference", limits=True),
            _column("Ratio", "ratio", "ratio", limits=True),
        ],
    ),
    "loss_ratio_gap": (
        "Loss ratio by group",
        "Losses for one unit of premium. A group below the others pays for them.",
        [
            _GROUP,
            _column("Loss ratio", "loss_ratio", "ratio", limits=True),
            _column("Gap to everyone", "gap", "ratio", limits=True),
        ],
    ),
    "loss_ratio_gap_by_class": (
        "Loss ratio by class and group",
        "The same within each class.",
        [
            _column("Class", "risk_class", "text"),
            _GROUP,
            _column("Loss ratio", "loss_ratio", "ratio", limits=True),
            _column("Gap to the class", "gap", "ratio", limits=True),
        ],
    ),
    "calibration": (
        "Calibration by group and premium level",
        "Policies are ordered by premium and divided into tenths. A premium that costs what it promises lies on the "
        "dashed line, in every group.",
        [
            _column("Tenth", "bin", "text"),
            _GROUP,
            _column("Premium", "premium"),
            _column("Loss", "loss", limits=True),
            _column("Loss minus premium", "difference", limits=True),
        ],
    ),
    "balance": (
        "Portfolio balance",
        "Total premiums against total losses, over all policies with or without a report.",
        [
            _column("Price", "price", "price_name"),
            _column("Premium", "premium"),
            _column("Loss", "loss"),
            _column("Premium minus loss", "difference", limits=True),
            _column("Ratio", "ratio", "ratio", limits=True),
        ],
    ),
    "lorenz": (
        "How well the premium tells cheap from dear risks",
        "Policies are ordered by premium. The further a curve hangs below the diagonal, the better the order of "
        "premiums follows that of losses in that group.",
        [],
    ),
    "gini": (
        "Gini index by group",
        "Twice the area between curve and diagonal: 0 if the premium says nothing about the loss.",
        [_GROUP, _column("Gini index", "gini", "ratio", limits=True)],
    ),
    "group_deviance": (
        "Error of the premium as a forecast, by group",
        "Mean deviance. A group whose losses vary more is harder to predict; that alone is no unfairness.",
        [_GROUP, _column("Deviance", "deviance", limits=True), _column("Gap to everyone", "gap", limits=True)],
    ),
    "keep_sensitivity": (
        "If the noise were another",
        "All numbers rest on keep, the probability that a report is the truth. Here are the group means for other "
        "values of it; the grey line marks the one in use. At 1 the reports are taken for the truth.",
        [
            _column("Keep", "keep", "ratio"),
            _GROUP,
            _column("Premium", "premium", limits=True),
            _column("Loss", "loss", limits=True),
        ],
    ),
}  # fmt: skip

MEASURES = {
    "demographic_unfairness": ("Differs between groups (UF)", "percent"),
    "proxy_discrimination": ("Proxy discrimination (PD)", "percent"),
    "proxy_explained": ("Explained by guessing the group", "percent"),
    "direct_spread": ("Spread of the best estimates", "price"),
    "proxy_shift": ("Shift through proxies", "price"),
}


def describe_section(
    section: Mapping[str, Any], head: Mapping[str, Any], model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return title, explanation and columns of a section."""
    title, text, columns = _SECTIONS[section["id"]]
    return {"title": title, "text": text, "columns": columns}


def limits(has_model: bool, is_private: bool) -> list[str]:
    """Return what is not guaranteed."""
    found = [
        "Intervals speak of sampling error and of the noise of the reports. They do not cover a channel that is not as "
        "declared, people who answered otherwise than the mechanism told them, or reports that depend on the loss.",
        "Group numbers are about those who reported. If reporting depends on premium or loss within a group, they "
        "are not those of the whole portfolio.",
        "One interval in twenty misses the truth when the level is 95 %; a table with many rows has some that do.",
        "Only the declared attribute is audited. Fairness is a legal and moral question too; these numbers inform "
        "an answer and are not legal advice.",
    ]
    if is_private:
        found.append(
            "Privacy covers the attribute through its report, not the features, premiums and losses, which travel "
            "as they are and may say something about it."
        )
    if has_model:
        found += [
            "Two people with the same features pay the same discrimination-free premium, and a feature acts through "
            "what it says about the cost, not through what it reveals about the group. Groups whose features differ "
            "can still pay different premiums on average: this is neither demographic parity nor equal loss ratios.",
            "The best estimates are a model's. If its form is wrong, so are they; the measures of proxy "
            "discrimination take them as given.",
            "Premiums need not add up to losses unless the weights are chosen so.",
        ]
    return found


def definitions(has_model: bool) -> list[list[str]]:
    """Return the terms of the report."""
    found = [
        ["Group", "A value of the sensitive attribute, as it truly is. Nobody's group is known; sums over many are."],
        ["Report", "What a person answered through the privacy mechanism: the truth, or by chance something else."],
        ["Epsilon", "The privacy parameter: a report multiplies the odds of any group by at most e to the epsilon."],
        ["Premium, loss", "Means per policy, or per unit of exposure where policies have weights."],
        ["Interval", "Limits that hold the true value with the stated confidence, if the channel is as declared."],
        [
            "Effective reports",
            "How many rows with a known attribute would be as informative. Below 50 no number is given.",
        ],
        ["Loss ratio", "Losses over premiums."],
        ["Calibrated", "The mean loss of those who pay a premium is that premium."],
        ["Demographic parity", "All groups pay the same premium on average."],
    ]
    if has_model:
        found += [
            ["Best estimate", "Expected cost given features and group."],
            ["Unaware price", "Expected cost given the features alone; it learns the group from proxies."],
            [
                "Discrimination-free",
                "Best estimates averaged over groups with weights that are the same for everybody.",
            ],
            ["Proxy", "A feature that says something about the group."],
            ["UF", "Share of the price's variance that lies between groups (Lindholm et al., 2026)."],
            ["PD", "Squared distance to the nearest price that infers nothing, over the variance (same source)."],
            [
                "Shift through proxies",
                "Root mean square of unaware minus discrimination-free price (Côté et al., 2025).",
            ],
            ["Spread", "Mean difference between the highest and the lowest best estimate of a policy."],
        ]
    return found
