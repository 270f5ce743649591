"""The paper's experiments, run again: experiments to tables, tables to figures, and every statement measured."""

from fairpremium.paper._reproduce import Reproduction, reproduce
from fairpremium.paper._setup import FULL, QUICK, RunSize

__all__ = ["FULL", "QUICK", "Reproduction", "RunSize", "reproduce"]
