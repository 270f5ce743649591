"""Prices that are not straight lines.

Women between 20 and 40 cost 200 more than other women. A linear model in age and smoking cannot follow that jump. Any
scikit-learn regressor that takes `sample_weight` can stand in for it: fairpremium weighs the rows of each group, and
the regressor finds the shape. The picture shows the premium of non-smokers by age.

[Model classes](../guide/model-classes.md) compares boosted trees, neural networks and regressors.
"""

import altair as alt
import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025

portfolio = zhang_liu_shi_2025(n=5000, rng=0)  # age and smoker, without a column for the age band
channel = RandomizedResponse(["F", "M"], keep=0.8)
reports = channel.privatize(portfolio.sensitive, rng=0)  # rng: for experiments only
models = {"linear": "linear", "tree": DecisionTreeRegressor(min_samples_leaf=40, random_state=0)}

quotes = pd.DataFrame({"age": np.arange(18, 81), "smoker": False})
curves = [quotes.assign(price=portfolio.discrimination_free(quotes), name="truth")]
for name, model in models.items():
    pricer = DiscriminationFreePricer(
        model=model, channel=channel, correction="posterior", pooling=0, intervals=False, random_state=0
    )
    pricer.fit(portfolio.X, portfolio.y, sensitive=reports)
    curves.append(quotes.assign(price=pricer.predict(quotes), name=name))
table = pd.concat(curves)
print(
    table[table["age"].isin([19, 30, 39, 41, 60])]
    .pivot(index="name", columns="age", values="price")
    .round(0)
    .to_string()
)

names = ["truth", "linear", "tree"]
colours = alt.Scale(domain=names, range=["#222222", "#d55e00", "#009e73"])
legend = alt.Legend(title=None, orient="top", labelFontSize=15, symbolSize=400, symbolStrokeWidth=3, columnPadding=30)
chart = (
    alt.Chart(table)
    .mark_line(strokeWidth=2.5)
    .encode(
        x=alt.X("age:Q", title="age of a non-smoker", scale=alt.Scale(domain=[18, 80], nice=False)),
        y=alt.Y("price:Q", title="discrimination-free price", scale=alt.Scale(zero=False)),
        color=alt.Color("name:N", scale=colours, legend=legend, sort=names),
        strokeDash=alt.StrokeDash(
            "name:N", scale=alt.Scale(domain=names, range=[[5, 4], [1, 0], [1, 0]]), legend=legend
        ),
    )
    .properties(width=560, height=300)
)
chart = chart.configure(font="Helvetica, Arial, sans-serif", background="white", padding=10)
chart = chart.configure_axis(labelFontSize=14, titleFontSize=14, titleFontWeight="normal", gridColor="#eeeeee")
chart.configure_view(stroke=None).save("price_shapes.svg")
