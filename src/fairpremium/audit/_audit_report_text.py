"""The words of the audit report: what each table shows, what is not guaranteed, what the terms mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import drawing

PRICE_NAMES = {"premiums": "premium", **drawing.PRICE_NAMES}
MEASURES = {
    "demographic_unfairness": ("Differs between groups (UF)", "percent"),
    "proxy_discrimination": ("Proxy discrimination (PD)", "percent"),
    "proxy_explained": ("Explained by guessing the group", "percent"),
    "direct_spread": ("Spread of the best estimates", "price"),
    "proxy_shift": ("Shift through proxies", "price"),
}
Column = dict[str, Any]


# --- sections: title, what to look for, columns ---


def _column(label: str, key: str, form: str = "price", limits: bool = False) -> Column:
    return {"label": label, "key": key, "form": form, "limits": limits}


_GROUP = _column("Group", "group", "group")
_CLASS = _column("Class", "risk_class", "text")
_TENTH = _column("Tenth", "bin", "text")
_PRICE = _column("Price", "price", "price_name")
_SHARE = _column("Share", "share", "percent")
_PREMIUM = _column("Premium", "premium", limits=True)
_LOSS = _column("Loss", "loss", limits=True)
_RATIO = _column("Ratio", "ratio", "ratio", limits=True)
_LOSS_RATIO = _column("Loss ratio", "loss_ratio", "ratio", limits=True)
_CHANGE = _column("Change", "change", limits=True)
_PAY_MORE = _column("Pay more", "pays_more", "percent")

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
        [_PRICE, _GROUP, _column("Mean", "mean", limits=True)],
    ),
    "discrimination": (
        "Direct and proxy discrimination of the unaware price",
        "How much a price that only leaves the attribute out still depends on it. The first three measures are shares "
        "of the price's variation, the other two are amounts of money.",
        [_column("Measure", "measure", "measure"), _column("Value", "value", "measure_value", limits=True)],
    ),
    "premium_change": (
        "Who gains and who loses: from unaware to discrimination-free",
        "Mean change of the premium, and the share of policies whose premium goes up.",
        [
            _GROUP,
            _column("Unaware", "old"),
            _column("Discrimination-free", "new"),
            _CHANGE,
            _PAY_MORE | {"limits": True},
        ],
    ),
    "premium_change_by_decile": (
        "Who gains and who loses, by premium level",
        "Policies are ordered by the unaware price and divided into tenths.",
        [_TENTH, _GROUP, _CHANGE, _PAY_MORE],
    ),
    "premium_change_by_class": (
        "Who gains and who loses, by risk class",
        "The same within each class.",
        [_CLASS, _GROUP, _CHANGE, _PAY_MORE],
    ),
    "adverse_selection": (
        "If a competitor charged the best estimate",
        "The worst case: everybody leaves whose own group is cheaper there. Those who stay pay less than they cost. "
        "A discrimination-free price carries this risk where competitors may discriminate.",
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
        [_GROUP, _SHARE, _PREMIUM, _LOSS],
    ),
    "group_means_by_class": (
        "Premium and loss by class and group",
        "The same within each class: differences between groups here are not due to the class.",
        [_CLASS, _GROUP, _SHARE, _PREMIUM, _LOSS],
    ),
    "demographic_disparity": (
        "Difference of premiums between groups",
        "Zero for all would be demographic parity. A difference is not unfair by itself: it may follow from "
        "features that say something about the cost.",
        [
            _GROUP,
            _column("Against", "against", "group"),
            _column("Difference", "difference", limits=True),
            _RATIO,
        ],
    ),
    "loss_ratio_gap": (
        "Loss ratio by group",
        "Losses for one unit of premium. A group with a lower loss ratio than the others subsidises them.",
        [_GROUP, _LOSS_RATIO, _column("Gap to everyone", "gap", "ratio", limits=True)],
    ),
    "loss_ratio_gap_by_class": (
        "Loss ratio by class and group",
        "The same within each class.",
        [_CLASS, _GROUP, _LOSS_RATIO, _column("Gap to the class", "gap", "ratio", limits=True)],
    ),
    "calibration": (
        "Calibration by group and premium level",
        "Policies are ordered by premium and divided into tenths. A calibrated premium lies on the dashed line in "
        "every group: the mean loss equals the mean premium.",
        [
            _TENTH,
            _GROUP,
            _column("Premium", "premium"),
            _LOSS,
            _column("Loss minus premium", "difference", limits=True),
        ],
    ),
    "balance": (
        "Portfolio balance",
        "Total premiums against total losses, over all policies with or without a report.",
        [
            _PRICE,
            _column("Premium", "premium"),
            _column("Loss", "loss"),
            _column("Premium minus loss", "difference", limits=True),
            _RATIO,
        ],
    ),
    "lorenz": (
        "How well the premium separates low from high risks",
        "Policies are ordered by premium. The further a curve lies below the diagonal, the better the order of "
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
        "Mean deviance. A group whose losses vary more is harder to predict; that alone is not unfair.",
        [_GROUP, _column("Deviance", "deviance", limits=True), _column("Gap to everyone", "gap", limits=True)],
    ),
    "keep_sensitivity": (
        "If the noise were different",
        "All numbers rest on keep, the probability that a report is the truth. Here are the group means for other "
        "values of it; the grey line marks the one in use. At 1 the reports are taken for the truth.",
        [_column("Keep", "keep", "ratio"), _GROUP, _PREMIUM, _LOSS],
    ),
}


def describe_section(name: str) -> dict[str, Any]:
    """Return title, explanation and columns of a section."""
    title, text, columns = _SECTIONS[name]
    return {"title": title, "text": text, "columns": columns}


_LIMITS = [
    "Intervals cover sampling error and the noise of the reports. They do not cover a channel that is not as "
    "declared, people who answered otherwise than the mechanism told them, or reports that depend on the loss.",
    "Group numbers are about those who reported. If reporting depends on premium or loss within a group, they "
    "are not those of the whole portfolio.",
    "One interval in twenty misses the truth when the level is 95 %; a table with many rows has some that do.",
    "Only the declared attribute is audited. Fairness is a legal and moral question too; these numbers inform "
    "an answer and are not legal advice.",
]
_ESTIMATED_CHANNEL_LIMIT = (
    "The noise of the reports was estimated. Intervals take the estimate as exact and are too narrow by its "
    "error; the section on other values of keep shows what that error does."
)
_PRIVACY_LIMIT = (
    "Privacy covers the attribute through its report. It does not cover the features, premiums and losses, which are "
    "not randomized and may say something about the attribute."
)
_MODEL_LIMITS = [
    "Two people with the same features pay the same discrimination-free premium, and a feature acts through "
    "what it says about the cost, not through what it reveals about the group. Groups whose features differ "
    "can still pay different premiums on average: this is neither demographic parity nor equal loss ratios.",
    "The best estimates come from a model. If its form is wrong, so are they; the measures of proxy "
    "discrimination take them as given.",
    "Premiums need not add up to losses unless the weights are chosen so.",
]


def limits(has_model: bool, privacy: Mapping[str, Any] | None) -> list[str]:
    """Return what is not guaranteed."""
    found = list(_LIMITS)
    if privacy is not None:
        found += [_ESTIMATED_CHANNEL_LIMIT, _PRIVACY_LIMIT] if privacy["estimated"] else [_PRIVACY_LIMIT]
    return found + (_MODEL_LIMITS if has_model else [])


_DEFINITIONS = {
    "Group": "A value of the sensitive attribute, as it truly is. Nobody's group is known; sums over many are.",
    "Report": "What a person answered through the privacy mechanism: the truth, or by chance something else.",
    "Epsilon": "The privacy parameter: a report multiplies the odds of any group by at most e to the epsilon.",
    "Premium, loss": "Means per policy, or per unit of exposure where policies have weights.",
    "Interval": "Limits that hold the true value with the stated confidence, if the channel is as declared.",
    "Effective reports": "How many rows with a known attribute would be as informative. Below 50 no number is given.",
    "Loss ratio": "Losses over premiums.",
    "Calibrated": "The mean loss of those who pay a premium is that premium.",
    "Demographic parity": "All groups pay the same premium on average.",
}
_MODEL_DEFINITIONS = {
    "Best estimate": "Expected cost given features and group.",
    "Unaware price": "Expected cost given the features alone; it learns the group from proxies.",
    "Discrimination-free": "Best estimates averaged over groups with weights that are the same for everybody.",
    "Proxy": "A feature that says something about the group.",
    "UF": "Share of the price's variance that lies between groups (Lindholm et al., 2026).",
    "PD": "Squared distance to the nearest price that infers nothing, over the variance (same source).",
    "Explained by guessing the group": "What the probabilities of the groups given the features explain of unaware "
    "minus discrimination-free price, over the variance of the unaware price.",
    "Shift through proxies": "Root mean square of unaware minus discrimination-free price (Côté et al., 2025).",
    "Spread": "Mean difference between the highest and the lowest best estimate of a policy.",
}


def definitions(has_model: bool) -> list[list[str]]:
    """Return the terms of the audit report, each with its meaning."""
    found = _DEFINITIONS | (_MODEL_DEFINITIONS if has_model else {})
    return [[term, meaning] for term, meaning in found.items()]
