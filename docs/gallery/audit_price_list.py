"""Auditing a price list from reports alone.

An insurer charges the unaware price. An auditor has the premiums, the losses and one noisy report per person, and asks
who pays what. The audit corrects for the noise and gives 95 % intervals. It needs no model, and nobody looks at
anyone's sex. Among smokers, men pay as much as women and cost far less: they pay for a sex that they do not have.

The last table has the same means with the true attribute, which only a simulation knows. [Auditing
prices](../guide/audit.md) lists all tables; `fairpremium audit` writes them as one page.
"""

import numpy as np

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import compute_group_means, compute_loss_ratio_gap, plot_group_means
from fairpremium.portfolios import zhang_liu_shi_2025

portfolio = zhang_liu_shi_2025(n=5000, rng=2025, age_band=True)
channel = RandomizedResponse(["F", "M"], keep=0.8)
reports = channel.privatize(portfolio.sensitive, rng=0)  # rng: for experiments only
X, y = portfolio.X, portfolio.y
pricer = DiscriminationFreePricer(channel=channel, correction="inverse", intervals=False)
premiums = pricer.fit(X, y, sensitive=reports).predict_unaware(X)  # any price list would do
smoking = np.where(X["smoker"], "smokers", "non-smokers")

columns = ["risk_class", "group", "premium", "premium_low", "premium_high", "loss", "loss_low", "loss_high"]
means = compute_group_means(premiums, y, sensitive=reports, channel=channel, by=smoking)
print(means[columns].round(0).to_string(index=False))

gaps = compute_loss_ratio_gap(premiums, y, sensitive=reports, channel=channel)
for _, row in gaps.iterrows():
    print(f"{row['group']}: {100 * row['loss_ratio']:.0f} of losses for 100 of premium")

truth = compute_group_means(premiums, y, sensitive=portfolio.sensitive, channel=None, by=smoking)
print(truth[["risk_class", "group", "premium", "loss"]].round(0).to_string(index=False))

chart = plot_group_means(premiums, y, sensitive=reports, channel=channel, by=smoking, unit="EUR a year")
chart.save("audit_price_list.svg")
