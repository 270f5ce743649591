"""Tests of fairpremium.privacy; a package so that they can share `_mutants`."""
