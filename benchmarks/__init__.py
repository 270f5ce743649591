"""Comparisons with simple answers and with other packages; each script writes results/."""
