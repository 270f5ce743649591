"""Three prices by risk class.

The paper's portfolio has 5,000 policies. Women cost more than men, and most smokers are women. The unaware price
therefore charges smokers for being women. The discrimination-free price does not: the difference between smokers and
non-smokers comes back to about 100, which is what smoking costs.

Nobody reveals their sex. Each person sends one report, which is true with probability 0.8. The grey bars run from the
best estimate for men to that for women; the green bands are 95 % intervals of the mean prices.
"""

import altair as alt
import numpy as np

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import compute_price_comparison
from fairpremium.portfolios import zhang_liu_shi_2025

portfolio = zhang_liu_shi_2025(n=5000, rng=2025, age_band=True)
channel = RandomizedResponse(["F", "M"], keep=0.8)
reports = channel.privatize(portfolio.sensitive, rng=0)  # rng: for experiments only
X = portfolio.X
pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(X, portfolio.y, sensitive=reports)

risk_class = np.where(X["smoker"], "Smoker", "Non-smoker") + np.where(X["age_20_40"], ", age 20-40", ", other ages")
table = compute_price_comparison(pricer, X, by=risk_class)
table["name"] = table["group"].map({"F": "women", "M": "men"}).fillna(table["price"].str.replace("_", "-"))
table["label"] = table["name"] + table["mean"].map(" {:.0f}".format)
prices = table.pivot_table(index="risk_class", columns="name", values="mean")[::-1]
print(prices[["men", "women", "unaware", "discrimination-free"]].round(0).astype(int).to_string())
for name in ("unaware", "discrimination-free"):
    extra = prices[name].iloc[:2].mean() - prices[name].iloc[2:].mean()
    print(f"At the {name} price smokers pay {extra:.0f} more than others.")


def at(column, data=table):
    """Place what is drawn: a price along the axis, a risk class in a lane of its own."""
    x = alt.X(column, title="mean price per policy and year", scale=alt.Scale(domain=[120, 770], nice=False))
    return alt.Chart(data).encode(x=x, y=alt.Y("risk_class:N", title=None, sort=list(prices.index)))


layers = [at("men:Q", prices.reset_index()).mark_rule(color="#e4e4e4", strokeWidth=24).encode(x2="women:Q")]
layers += [at("low:Q").mark_rule(color="#009e73", strokeWidth=24, opacity=0.35).encode(x2="high:Q")]
for name, colour, shape, move in [
    ("men", "#666666", None, {"dx": -10, "align": "right"}),
    ("women", "#666666", None, {"dx": 14, "align": "left"}),
    ("unaware", "#c04f00", "diamond", {"dy": 26}),
    ("discrimination-free", "#00815d", "circle", {"dy": -24}),
]:
    lane = at("mean:Q", table[table["name"] == name])
    layers += [lane.mark_text(color=colour, fontSize=15, **move).encode(text="label:N")]
    layers += [lane.mark_point(color=colour, shape=shape, filled=True, size=220, opacity=1)] if shape else []
chart = alt.layer(*layers).properties(width=560, height=alt.Step(78))
chart = chart.configure(font="Helvetica, Arial, sans-serif", background="white", padding=10)
chart = chart.configure_axis(labelFontSize=15, titleFontSize=15, titleFontWeight="normal", domain=False, ticks=False)
chart = chart.configure_axisX(tickCount=6, gridColor="#f0f0f0").configure_axisY(
    grid=False, labelLimit=260, minExtent=185
)
chart.configure_view(stroke=None).save("three_prices.svg")
