"""Documents about a model, drawn from its file alone: a model card, and a record for supervisors.

`model_card` and `model_record` return a `ModelDocument`, which is written as Markdown or HTML. Nothing is left to
fill in but the sign-off.
"""

from ._card import model_card
from ._document import ModelDocument, Section, Table
from ._record import model_record

__all__ = ["ModelDocument", "Section", "Table", "model_card", "model_record"]
