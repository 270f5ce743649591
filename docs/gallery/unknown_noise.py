"""Finding an unknown keep.

The reports came without the probability `keep` that a report is true; it is 0.8. Five sources can estimate it, each
with an interval. Second reports of 2,000 people, 400 people whose sex is known, and the likelihood of the costs come
close. Known shares of the groups say little here, because the shares are almost equal. The paper's anchor method errs
low: it needs people whose features give their sex away, and there are none. Nobody declared that there are, so that it
identifies nothing; its interval is a lower bound, and covers the truth.

[When the noise is unknown](../guide/unknown-noise.md) says what each source rests on.
"""

import altair as alt
import pandas as pd

from fairpremium import AnchorNoise, LikelihoodNoise, MarginNoise, RandomizedResponse, RetestNoise, ValidationNoise
from fairpremium.portfolios import zhang_liu_shi_2025

portfolio = zhang_liu_shi_2025(n=5000, rng=0, age_band=True)
X, y, sex = portfolio.X, portfolio.y, portfolio.sensitive
hidden = RandomizedResponse(["F", "M"], keep=0.8)  # the estimators do not see it
reports = hidden.privatize(sex, rng=1)  # rng: for experiments only
second = hidden.privatize(sex[:2000], rng=2)

sources = {
    "second reports of 2,000": RetestNoise(reports[:2000], second),
    "400 people of known sex": ValidationNoise(sex[:400], reports[:400]),
    "known shares": MarginNoise({"F": 0.45, "M": 0.55}),
    "likelihood of the costs": LikelihoodNoise(family="normal", random_state=0),
    "anchor points": AnchorNoise(random_state=0),
}
rows = []
for name, source in sources.items():
    source.fit(X, y, sensitive=reports)
    low, high = source.interval_
    rows.append({"source": name, "keep": source.keep_, "low": low, "high": high, "identified": source.identified_})
table = pd.DataFrame(rows)
print(table.round(3).to_string(index=False))

base = alt.Chart(table).encode(y=alt.Y("source:N", title=None, sort=list(sources)))
scale = alt.Scale(domain=[0.5, 1.0], nice=False)
x = alt.X("keep:Q", axis=alt.Axis(title="keep", tickCount=5), scale=scale)
truth = alt.Chart(pd.DataFrame({"keep": [0.8], "text": ["the truth"]})).encode(x=x)
layers = [
    truth.mark_rule(color="#999999", strokeDash=[5, 4]),
    truth.mark_text(fontSize=14, color="#666666", align="left", dx=5).encode(text="text:N", y=alt.value(8)),
    base.mark_rule(strokeWidth=12, opacity=0.3, color="#0072b2").encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
    base.mark_point(filled=True, size=130, opacity=1, color="#0072b2").encode(x=x),
]
chart = alt.layer(*layers).properties(width=460, height=alt.Step(48))
chart = chart.configure(font="Helvetica, Arial, sans-serif", background="white", padding=10)
chart = chart.configure_axis(labelFontSize=14, titleFontSize=14, titleFontWeight="normal", gridColor="#eeeeee")
chart.configure_axisY(minExtent=190, labelLimit=260, grid=False).configure_view(stroke=None).save("unknown_noise.svg")
