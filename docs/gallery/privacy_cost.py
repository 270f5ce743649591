"""What privacy costs.

The more noise in the reports, the larger the error of the premium. `inverse`, the paper's estimator, corrects the noise
without any assumption about the costs, and pays for it where `keep` is low. `likelihood` uses the distribution of the
costs, which is right here, and loses little. A price that takes the reports for the truth is biased at every `keep`.

Each point is the root mean square error of the premium over 5,000 policies, in per cent of the mean premium: the mean
of three simulated portfolios. [Choosing epsilon](../guide/choosing-epsilon.md) plans the number of rows in advance.
"""

import altair as alt
import numpy as np
import pandas as pd

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025

rows = []
for seed in range(3):
    portfolio = zhang_liu_shi_2025(n=5000, rng=seed, age_band=True)
    truth = portfolio.discrimination_free(portfolio.X)
    for keep in (0.95, 0.9, 0.8, 0.7, 0.6):
        noise = RandomizedResponse(["F", "M"], keep=keep)
        reports = noise.privatize(portfolio.sensitive, rng=seed)  # rng: for experiments only
        for method, channel, correction in [
            ("reports taken for the truth", None, "inverse"),
            ("inverse", noise, "inverse"),
            ("likelihood", noise, "likelihood"),
        ]:
            pricer = DiscriminationFreePricer(channel=channel, correction=correction, pooling=0, intervals=False)
            premiums = pricer.fit(portfolio.X, portfolio.y, sensitive=reports).predict(portfolio.X)
            error = 100 * np.sqrt(np.mean((premiums - truth) ** 2)) / truth.mean()
            rows.append({"method": method, "keep": keep, "error": error})
table = pd.DataFrame(rows).groupby(["method", "keep"], sort=False)["error"].mean().reset_index()
print(table.pivot_table(index="method", columns="keep", values="error", sort=False).round(1).to_string())

colours = {"reports taken for the truth": "#d55e00", "inverse": "#0072b2", "likelihood": "#009e73"}
x_axis = alt.Axis(title="keep: the probability that a report is true", values=[0.6, 0.7, 0.8, 0.9, 0.95], format=".2~f")
y_axis = alt.Axis(title="error of the premium, % of its mean", values=[0.2, 0.5, 1, 2, 5, 10, 20], format="~g")
base = alt.Chart(table).encode(
    x=alt.X("keep:Q", axis=x_axis, scale=alt.Scale(domain=[0.58, 0.97])),
    y=alt.Y("error:Q", axis=y_axis, scale=alt.Scale(type="log", domain=[0.2, 20])),
    color=alt.Color("method:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=None),
)
names = base.transform_filter(alt.datum.keep == 0.8).mark_text(dy=-22, fontSize=15).encode(text="method:N")
chart = alt.layer(base.mark_line(strokeWidth=2.5), base.mark_point(filled=True, size=90, opacity=1), names)
chart = chart.properties(width=560, height=300).configure(font="Helvetica, Arial, sans-serif", padding=10)
chart = chart.configure_axis(labelFontSize=14, titleFontSize=14, titleFontWeight="normal", gridColor="#eeeeee")
chart.configure_view(stroke=None).save("privacy_cost.svg")
