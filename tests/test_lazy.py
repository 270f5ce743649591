"""Modules that are loaded when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "use",
    [
        "import scipy.stats; value = scipy.stats.norm.cdf(0)",
        "from scipy.stats import norm; value = norm.cdf(0)",
        "import scipy; value = scipy.stats.norm.cdf(0)",
        "import scipy.stats.distributions as laws; value = laws.norm.cdf(0)",
        "import scipy.stats as a; a.norm; import scipy.stats as b; value = a.norm is b.norm and 0.5",
    ],
)
def test_a_deferred_module_is_loaded_when_it_is_used(use):
    code = (
        "import sys; from fairpremium.lazy import defer_module; defer_module('scipy.stats')\n"
        "import scipy.stats, sklearn.base\n"
        "print('scipy.stats.distributions' in sys.modules)\n"
        f"{use}\n"
        "print('scipy.stats.distributions' in sys.modules, value)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "0.5"]


def test_a_module_that_is_loaded_stays():
    code = "import sys, json, fairpremium.lazy as lazy; lazy.defer_module('json'); print(sys.modules['json'] is json)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
