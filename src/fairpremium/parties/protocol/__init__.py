"""What the parties say to each other, and the files they exchange: messages, problems, keys, signatures, batches.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._attributes import *
    from ._batch_file import *
    from ._checkpoints import *
    from ._invitations import *
    from ._key_chain import *
    from ._keys import *
    from ._linkage import *
    from ._merkle import *
    from ._messages import *
    from ._policy_keys import *
    from ._portfolio_part import *
    from ._problems import *
    from ._report_batch import *
    from ._rules import *
    from ._safe_files import *
    from ._signatures import *
    from ._storage_key import *

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_attributes": "Attribute channel_of choose_attributes descriptor_of labels_of names_of one_attribute",
        "_batch_file": (
            "NO_MEANING ReportBatch batch_header batch_pieces code_width find_codes match open_batch plain_bytes "
            "sort_batch"
        ),
        "_checkpoints": "chain_hash leaf_of sign_root what_is_wrong",
        "_invitations": "Invitation TOKEN_BYTES invitation_key opener_of read_token write_token",
        "_key_chain": (
            "KeyChain LARGEST_CHAIN ServiceKey Succession as_chains pack_keys read_trusted_keys unpack_keys"
        ),
        "_keys": "SigningKey VerifyKey new_key read_key read_public_key write_key",
        "_linkage": "LinkageSecret make_key make_keys new_secret read_secret write_secret",
        "_merkle": (
            "EMPTY_ROOT HASH_BYTES append_leaf check_consistency check_inclusion prove_consistency prove_inclusion "
            "read_root root_of"
        ),
        "_messages": (
            "Answered ChainCheckpoint Checkpoint ClaimFit CollectorStudy CountedEpoch DeclaredAnchor ENDED Entry Epoch "
            "EstimatedChannel Feature Fit FitSpec ID InsurerStudy KnownChannel LogPage LogProof Message "
            "NamedAttribute OperatorStudy PartTaken PerilColumns Portfolio PortfolioSpec PublicKey Question "
            "QuestionText Refusal ReleaseRules Report ReportSpec ReportsTaken Retention Role SeveralAttributes Spent "
            "StudySpec TrueAttribute check_id stored_fields"
        ),
        "_policy_keys": "KEY as_keys find_words has_repeats read_keys sort_words to_words",
        "_portfolio_part": "PORTFOLIO_TYPE check_portfolio_keys check_portfolio_part write_portfolio_part",
        "_problems": "PROBLEMS Problem list_allowed",
        "_report_batch": "BATCH_TYPE check_batch meaning write_batches",
        "_rules": "Rules round_count",
        "_safe_files": "read_private replace_file restrict_access settle sync_folder write_private",
        "_storage_key": (
            "STORAGE_KEY STORAGE_KEY_FILE StorageKey StorageKeyError is_sealed open_stored storage_key_of "
            "write_storage_key"
        ),
        "_signatures": "Verified content_digest request_url sign_request verify_request",
    },
)
