"""The service's own keys, and how the keys of all parties are changed."""

from ._key_ring import KeyRing, ServiceKeyError
from ._party_keys import KnownKey, RegisteredKey, add_key, in_force, known_keys, list_keys, revoke_key, rotate_party_key
from ._study_secret import rotate_study_secret

__all__ = [
    "KeyRing",
    "KnownKey",
    "RegisteredKey",
    "ServiceKeyError",
    "add_key",
    "in_force",
    "known_keys",
    "list_keys",
    "revoke_key",
    "rotate_party_key",
    "rotate_study_secret",
]
