"""What the parties say to each other, and the files they exchange: messages, problems, keys, signatures, batches.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._attributes import *
    from ._batch_file import *
    from ._invitations import *
    from ._keys import *
    from ._linkage import *
    from ._messages import *
    from ._policy_keys import *
    from ._portfolio_part import *
    from ._problems import *
    from ._report_batch import *
    from ._rules import *
    from ._safe_files import *
    from ._signatures import *

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_attributes": "Attribute channel_of choose_attributes descriptor_of labels_of names_of one_attribute",
        "_batch_file": (
            "NO_MEANING ReportBatch batch_header batch_pieces code_width find_codes match open_batch plain_bytes "
            "sort_batch"
        ),
        "_invitations": "Invitation TOKEN_BYTES invitation_key read_token write_token",
        "_keys": "SigningKey VerifyKey load_or_create_key new_key read_key read_public_key write_key",
        "_linkage": "LinkageSecret make_key make_keys new_secret read_secret write_secret",
        "_messages": (
            "Answered Checkpoint ClaimFit CollectorStudy CountedEpoch DeclaredAnchor ENDED Entry Epoch "
            "EstimatedChannel Feature Fit FitSpec ID InsurerStudy KnownChannel LogPage Message NamedAttribute "
            "OperatorStudy PartTaken PerilColumns Portfolio PortfolioSpec PublicKey Question QuestionText Refusal "
            "ReleaseRules Report ReportSpec "
            "ReportsTaken Retention Role SeveralAttributes Spent StudySpec TrueAttribute check_id stored_fields"
        ),
        "_policy_keys": "KEY as_keys find_words has_repeats read_keys sort_words to_words",
        "_portfolio_part": "PORTFOLIO_TYPE check_portfolio_part write_portfolio_part",
        "_problems": "PROBLEMS Problem",
        "_report_batch": "BATCH_TYPE check_batch meaning write_batches",
        "_rules": "Rules round_count",
        "_safe_files": "restrict_access settle sync_folder",
        "_signatures": "Verified content_digest request_url sign_request verify_request",
    },
)
