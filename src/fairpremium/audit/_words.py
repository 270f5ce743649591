"""The words of a report: what each table says, what is not guaranteed, what the terms mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

PRICE_NAMES = {
    "premiums": "premium",
    "best_estimate": "best estimate",
    "unaware": "unaware",
    "discrimination_free": "discrimination-free",
}
Column = dict[str, Any]


def percent(value: float | None, digits: int = 1) -> str:
    r"""Write a share as per cent.

    Examples
    --------
    >>> percent(0.1234).split(), percent(0.0004).split(), percent(None)
    (['12.3', '%'], ['0.04', '%'], '')
    >>> percent(1e-8).replace("\N{NO-BREAK SPACE}", " "), percent(-1e-8).replace("\N{NO-BREAK SPACE}", " ")
    ('less than 0.01 %', 'more than -0.01 %')
    """
    if value is None or not math.isfinite(value):
        return ""
    scaled = 100 * value
    if scaled and abs(scaled) < 0.01:
        return f"{'less than 0' if scaled > 0 else 'more than -0'}.01\N{NO-BREAK SPACE}%"
    if scaled and abs(scaled) < 0.1:
        return f"{scaled:.1g}\N{NO-BREAK SPACE}%"
    return f"{scaled:.{digits}f}\N{NO-BREAK SPACE}%"


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
        "What the members of each group would pay on average. If everybody were charged the best estimate of "
        "their own group, each group would pay for itself.",
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
        "If the noise were different",
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


def describe_section(name: str) -> dict[str, Any]:
    """Return title, explanation and columns of a section."""
    title, text, columns = _SECTIONS[name]
    return {"title": title, "text": text, "columns": columns}


def limits(has_model: bool, privacy: Mapping[str, Any] | None) -> list[str]:
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
    if privacy is not None and privacy["estimated"]:
        found.append(
            "The noise of the reports was estimated. Intervals take the estimate as exact and are too narrow by its "
            "error; the section on other values of keep shows what that error does."
        )
    if privacy is not None:
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
                "Explained by guessing the group",
                "What the probabilities of the groups given the features explain of unaware minus discrimination-free "
                "price, over the variance of the unaware price.",
            ],
            [
                "Shift through proxies",
                "Root mean square of unaware minus discrimination-free price (Côté et al., 2025).",
            ],
            ["Spread", "Mean difference between the highest and the lowest best estimate of a policy."],
        ]
    return found
