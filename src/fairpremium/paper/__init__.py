"""The paper's experiments, run again: studies to tables, tables to figures, and every claim measured."""

from fairpremium.paper._reproduce import Reproduction, reproduce
from fairpremium.paper._settings import FULL, QUICK, Settings

__all__ = ["FULL", "QUICK", "Reproduction", "Settings", "reproduce"]
