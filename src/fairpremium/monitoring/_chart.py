"""The chart of a monitor: every watched number over the periods, with its limits."""

from typing import Any

from fairpremium.audit.drawing import INK, PRICE_COLOURS, apply_style, import_altair, panel_title

from ._measures import MEASURES, REPORT_SHARE
from ._monitor import Monitor

_WIDTH, _HEIGHT, _ACROSS, _LABELS = 300, 150, 2, 8
_BLUE, _ALARM = "#0072b2", PRICE_COLOURS["unaware"]


def plot_monitor(monitor: Monitor, *, unit: str = "") -> Any:
    """Draw every watched number over the periods.

    Parameters
    ----------
    monitor : Monitor
        With at least one period.
    unit : str
        What an amount is measured in, for the axis: "EUR a year".

    Returns
    -------
    altair.Chart
        One panel for each number. The line is the measure over all periods so far, the band its interval, which holds
        at every look. Small dots are single periods. Dashed lines are limits, and a large mark is an alarm.

    Raises
    ------
    MissingExtraError
        If Altair is not installed.
    """
    alt = import_altair()
    table = monitor.history()
    if not len(table):
        raise ValueError("The monitor has seen no period yet, so that there is nothing to draw.")
    periods = list(dict.fromkeys(table["period"]))
    every = max(1, -(-len(periods) // _LABELS))
    axis = alt.Axis(title=None, labelAngle=0, values=periods[::every], labelOverlap=True)
    x = alt.X("period:O", sort=periods, axis=axis)
    panels = []
    for (measure, group), rows in table.groupby(["measure", "group"], sort=False):
        against = rows["against"].iloc[0]
        amount = unit and measure in ("premium_difference", "proxy_effect")
        words = "share of the reports" if measure == REPORT_SHARE else MEASURES[str(measure)].words
        data = rows.assign(group=str(group), against=str(against))
        scale = alt.Scale(zero=False)
        y_title = unit if amount else None
        base = alt.Chart(data).encode(x=x)
        tooltip = ["period:N", "this_period:Q", "value:Q", "low:Q", "high:Q", "change:Q", "alarm:N"]
        band_marks = {"opacity": 0.25, "color": _BLUE}
        if len(periods) == 1:  # an area needs two
            band = base.mark_rule(**band_marks, strokeWidth=9)
        else:
            band = base.mark_area(**band_marks)
        layers = [
            band.encode(y=alt.Y("low:Q", scale=scale, axis=alt.Axis(title=y_title, tickCount=4)), y2="high:Q"),
            base.mark_line(color=_BLUE).encode(y=alt.Y("value:Q", scale=scale)),
            base.mark_point(filled=True, size=18, color=INK, opacity=0.8).encode(y="this_period:Q", tooltip=tooltip),
        ]
        if data["alarm"].ne("").any():
            alarms = alt.Chart(data[data["alarm"] != ""]).encode(x=x)
            layers.append(
                alarms.mark_point(filled=True, size=90, shape="diamond", color=_ALARM, opacity=1).encode(
                    y="value:Q", tooltip=tooltip
                )
            )
        for side in ("limit_low", "limit_high"):
            if data[side].notna().any():
                rule = alt.Chart(data.iloc[:1]).mark_rule(strokeDash=[5, 4], color=INK)
                layers.append(rule.encode(y=f"{side}:Q"))
        who = f"report {group}" if measure == REPORT_SHARE else f"{group} against {against}"
        title = panel_title(f"{words[0].upper()}{words[1:]}", subtitle=who)
        panels.append(alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=title))
    level = f"{100 * monitor.level:g} %"
    note = [
        f"Line and band: all periods so far, with {level} intervals that hold at every look, for all panels at once.",
        "Dots: single periods. Dashed: limits. Diamonds: alarms.",
    ]
    title = alt.Title(note, anchor="start", fontSize=13, fontWeight="normal", color=INK, offset=12)
    return apply_style(alt.concat(*panels, columns=_ACROSS, spacing=24, title=title))
