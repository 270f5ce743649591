"""The errors and warnings that a caller may want to catch; wrong arguments are ``ValueError`` or ``TypeError``."""


class FairPremiumError(Exception):
    """Base of all errors that fairpremium defines."""


class RiskUnboundedError(FairPremiumError, ArithmeticError):
    """The corrected risk of a group has no minimum in this sample.

    Attributes
    ----------
    group : object
        The group whose risk has no minimum.
    effective_rows : float
        How many rows with a known attribute would carry the same information about the group.
    """

    def __init__(self, message: str, *, group: object = None, effective_rows: float = float("nan")):
        super().__init__(message)
        self.group = group
        self.effective_rows = effective_rows


class ConvergenceError(FairPremiumError, ArithmeticError):
    """A solver stopped before its gradient vanished."""


class NotIdentifiedError(FairPremiumError, ValueError):
    """The data do not identify the quantity that was asked for."""


class OutOfRangeError(FairPremiumError, ValueError):
    """A price would be far outside the range of the outcomes that the model learned from."""


class UnattainableReferenceError(FairPremiumError, ValueError):
    """No reference distribution over the groups balances premiums and losses."""


class BudgetExceededError(FairPremiumError, RuntimeError):
    """A report would cost more epsilon than the person's budget has left."""


class NewDrawError(FairPremiumError, ValueError):
    """People who have reported before would be drawn afresh, which costs them epsilon again and was not confirmed."""


class ModelFileError(FairPremiumError, ValueError):
    """A file is not a model that this version can read."""


class BundleError(ModelFileError):
    """A bundle from the third party fails one of its checks; nothing of it was used.

    Attributes
    ----------
    check : str
        Which one: "archive", "signature", "version", "digests", "schema", "model" or "self-test", in this order.
    """

    def __init__(self, message: str, *, check: str):
        super().__init__(message)
        self.check = check


class MissingExtraError(FairPremiumError, ImportError):
    """An optional dependency is not installed."""


class ChannelRefutedWarning(UserWarning):
    """The reports are sharper than the declared channel permits, so that a fit with it overcorrects."""


class ExposureWarning(UserWarning):
    """The outcome looks like counts that were not divided by their exposure."""


class GroupsNotScoredWarning(UserWarning):
    """A score was computed without reports, so that it compares unaware prices and not those of the groups."""


class SourcesDependWarning(UserWarning):
    """The source that a row came through depends on the outcome or the attribute beyond the features."""
