"""Rows that do not fit into memory.

A folder of Parquet files takes the place of a table. Columns are named instead of passed, rows are read piece by piece,
and the premiums go to a file. The numbers are those of the same rows in memory. The portfolio counts claims: the family
is Poisson, and exposure is the weight. There are three groups of unequal size.

The picture shows the mean premium by region and vehicle with its mean interval; the black ticks are the true
discrimination-free price. [Data larger than memory](../guide/large-data.md) has the engines and the limits.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import altair as alt
import numpy as np
import pandas as pd

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import unbalanced_poisson

channel = RandomizedResponse(["A", "B", "C"], epsilon=2)
pricer = DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0, random_state=0)
with TemporaryDirectory() as place:
    folder = Path(place, "portfolio")
    folder.mkdir()
    for year in range(4):
        p = unbalanced_poisson(n=50_000, rng=year)
        reports = channel.privatize(p.sensitive, rng=year)  # rng: for experiments only
        table = p.X.assign(frequency=p.y, exposure=p.sample_weight, report=reports, truth=p.discrimination_free(p.X))
        table.to_parquet(folder / f"{year}.parquet", index=False)

    features = list(p.X.columns)
    pricer.fit(folder, y="frequency", sensitive="report", sample_weight="exposure", features=features)
    written = pricer.predict_to(folder, Path(place, "premiums"), columns=["region", "vehicle", "truth"], level=0.95)
    premiums = pd.read_parquet(Path(place, "premiums"))
    whole = pd.read_parquet(folder)
shares = dict(zip(pricer.groups_, pricer.group_distribution_.round(2).tolist(), strict=True))
print(f"{written.rows:,} premiums written; estimated shares of the groups: {shares}")

weights = {"sensitive": whole["report"], "sample_weight": whole["exposure"]}
in_memory = pricer.fit(whole[features], whole["frequency"], **weights).predict(whole[features])
print("the same premiums in memory:", np.allclose(in_memory, premiums["premium"], rtol=1e-9))
means = premiums.groupby(["region", "vehicle"])[["premium", "low", "high", "truth"]].mean().reset_index()
print(means.round(3).to_string(index=False))

x = alt.Scale(domain=[0.06, 0.18], nice=False)
base = alt.Chart(means.assign(risk=means["region"] + ", " + means["vehicle"]))
base = base.encode(y=alt.Y("risk:N", title=None, sort=alt.SortField("premium")))
layers = [
    base.mark_rule(strokeWidth=12, opacity=0.3, color="#009e73").encode(x=alt.X("low:Q", scale=x), x2="high:Q"),
    base.mark_point(filled=True, size=110, opacity=1, color="#009e73").encode(
        x=alt.X("premium:Q", axis=alt.Axis(title="claims a year", tickCount=6))
    ),
    base.mark_tick(color="#222222", thickness=2, size=20).encode(x="truth:Q"),
]
chart = alt.layer(*layers).properties(width=480, height=alt.Step(36))
chart = chart.configure(font="Helvetica, Arial, sans-serif", background="white", padding=10)
chart = chart.configure_axis(labelFontSize=14, titleFontSize=14, titleFontWeight="normal", gridColor="#eeeeee")
chart.configure_axisY(minExtent=110, grid=False).configure_view(stroke=None).save("larger_than_memory.svg")
