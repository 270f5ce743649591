"""Where rows live. Estimators see one operation: sum a function over blocks of rows."""

from fairpremium.blocks._rows import Block, Rows

__all__ = ["Block", "Rows"]
