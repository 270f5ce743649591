"""The service's own keys, and how the keys of all parties are changed."""

from ._key_ring import KeyRing, ServiceKeyError
from ._party_keys import RegisteredKey, active_keys, add_key, in_force, list_keys, revoke_key, rotate_party_key
from ._study_secret import rotate_study_secret

__all__ = [
    "KeyRing",
    "RegisteredKey",
    "ServiceKeyError",
    "active_keys",
    "add_key",
    "in_force",
    "list_keys",
    "revoke_key",
    "rotate_party_key",
    "rotate_study_secret",
]
