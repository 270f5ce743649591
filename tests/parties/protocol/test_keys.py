"""Keys of the parties: what they sign, what they never show, and the files they live in."""

import base64
import copy
import hashlib
import json
import os
import pickle
import stat
import struct

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from fairpremium.parties.protocol._keys import SigningKey, VerifyKey, new_key, read_key, read_public_key, write_key

# RFC 8032, section 7.1: secret, public key, message, signature
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_rfc_8032(secret, public, message, signature):
    key = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)))
    assert key.public_key == f"ed25519:{public}"
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert VerifyKey(key.public_key).verify(bytes.fromhex(signature), bytes.fromhex(message))


def test_the_id_of_a_key_is_a_hash_of_its_public_half():
    key = new_key()
    raw = bytes.fromhex(key.public_key.removeprefix("ed25519:"))
    assert key.key_id == f"ed25519-{hashlib.sha256(raw).hexdigest()[:16]}" == VerifyKey(key.public_key).key_id
    assert new_key().key_id != key.key_id


@given(st.integers(0, 511), st.binary(max_size=50))
def test_no_bit_of_signature_or_message_may_change(bit, message):
    key = KEY
    signature = bytearray(key.sign(message))
    assert key.verify_key.verify(bytes(signature), message)
    assert not key.verify_key.verify(bytes(signature), message + b"x")
    signature[bit // 8] ^= 1 << bit % 8
    assert not key.verify_key.verify(bytes(signature), message)
    assert not new_key().verify_key.verify(key.sign(message), message)


KEY = new_key()


def test_a_signature_of_another_length_is_no_signature():
    for signature in (b"", bytes(63), bytes(65), KEY.sign(b"") + b"\0"):
        assert KEY.verify_key.verify(signature, b"") is False


def test_the_secret_shows_nowhere(tmp_path):
    key = new_key()
    write_key(tmp_path / "k", key)
    pem = (tmp_path / "k").read_bytes()
    raw = serialization.load_pem_private_key(pem, None).private_bytes_raw()
    shown = repr(key) + str(key) + f"{key}" + json.dumps({"key": repr(key)}) + str(dir(key)) + key.public_key
    for form in (raw.hex(), base64.b64encode(raw).decode(), repr(raw)[2:-1]):
        assert form not in shown
        assert form not in (tmp_path / "k.pub").read_text()
    assert not hasattr(key, "__dict__")
    for use in (pickle.dumps, copy.copy, copy.deepcopy, lambda k: pickle.dumps(k, 5), lambda k: pickle.dumps({"k": k})):
        with pytest.raises(TypeError, match="holds a secret"):
            use(key)


def test_a_key_does_not_change():
    with pytest.raises(AttributeError):
        KEY.verify_key = new_key().verify_key
    with pytest.raises(AttributeError):
        del KEY.verify_key
    with pytest.raises(TypeError, match="Ed25519"):
        SigningKey(ec.generate_private_key(ec.SECP256R1()))


def test_public_keys_are_values():
    key = VerifyKey(KEY.public_key)
    assert key == KEY.verify_key == pickle.loads(pickle.dumps(key)) == eval(repr(key))
    assert len({key, KEY.verify_key}) == 1
    assert key != new_key().verify_key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "ed25519:" + "0" * 63,
        "ed25519:" + "A" * 64,
        "ed25519:" + "0" * 65,
        KEY.public_key + "\n",
        " " + KEY.public_key,
        KEY.public_key.replace("ed25519", "ed448"),
        None,
        b"ed25519:" + b"1" * 64,
    ],
    ids=range(10),
)
def test_other_texts_are_not_public_keys(text):
    with pytest.raises(ValueError, match="not a public key"):
        VerifyKey(text)


def multiples_of_small_order():
    """The points of order 1, 2, 4 and 8, found with the curve's own addition law: 8 encodings and their twins."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p

    def add(a, b):
        (x1, y1), (x2, y2) = a, b
        t = d * x1 * x2 * y1 * y2 % p
        return (
            (x1 * y2 + x2 * y1) * pow(1 + t, -1, p) % p,
            (y1 * y2 + x1 * x2) * pow(1 - t, -1, p) % p,
        )

    def times(n, point):
        total = (0, 1)
        for bit in bin(n)[2:]:
            total = add(total, total)
            if bit == "1":
                total = add(total, point)
        return total

    def lift(y):
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        root = pow(square, (p + 3) // 8, p)
        if root * root % p != square:
            root = root * pow(2, (p - 1) // 4, p) % p
        return (root, y) if root * root % p == square else None

    order = 2**252 + 27742317777372353535851937790883648493
    found = set()
    for y in range(2, 60):  # times the large prime order, any point becomes one of small order
        point = lift(y)
        if point:
            torsion = times(order, point)
            found |= {times(k, torsion) for k in range(8)}
    return p, found


def test_keys_of_small_order_are_refused():
    p, points = multiples_of_small_order()
    assert len(points) == 8
    for _, y in points:
        for number in (n for n in (y, y + p) if n < 2**255):
            for sign in (0, 1):
                with pytest.raises(ValueError, match="anyone can sign"):
                    VerifyKey("ed25519:" + (number | sign << 255).to_bytes(32, "little").hex())


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_key_survives_its_file(tmp_path):
    path = tmp_path / "insurer.key"
    old = os.umask(0)
    try:
        write_key(path, KEY)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = read_key(path)
    assert again.sign(b"x") == KEY.sign(b"x")
    assert read_public_key(str(path) + ".pub") == KEY.verify_key
    assert (tmp_path / "insurer.key.pub").read_text() == KEY.public_key + "\n"
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "k"
    write_key(path, KEY)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="not overwritten"):
        write_key(path, new_key())
    assert path.read_bytes() == before
    (tmp_path / "other.pub").write_text("mine")
    with pytest.raises(FileExistsError, match=r"other\.pub exists"):
        write_key(tmp_path / "other", new_key())
    assert not (tmp_path / "other").exists()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_key(tmp_path / "link", new_key())
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o610, 0o777])
def test_a_file_that_others_can_read_is_refused(tmp_path, mode):
    write_key(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(mode)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_key(tmp_path / "k")
    (tmp_path / "k").chmod(0o400)
    assert read_key(tmp_path / "k").key_id == KEY.key_id


def grant(path, user):
    """Let another user read a file, by an ACL as systemd sets it on a credential."""
    nobody = 0xFFFFFFFF
    entries = [(0x01, 4, nobody), (0x02, 4, user), (0x04, 0, nobody), (0x10, 4, nobody), (0x20, 0, nobody)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no ACL in this file system: {error}")


def test_a_credential_of_systemd_is_read_though_its_acl_shows_as_rights_of_the_group(tmp_path, monkeypatch):
    write_key(tmp_path / "k", KEY)
    (tmp_path / "k").chmod(0o400)
    grant(tmp_path / "k", 10001)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o440
    with pytest.raises(PermissionError, match="chmod 600"):
        read_key(tmp_path / "k")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_key(tmp_path / "k").key_id == KEY.key_id
    for mode in (0o404, 0o460):
        (tmp_path / "k").chmod(mode)
        with pytest.raises(PermissionError, match="chmod 600"):
            read_key(tmp_path / "k")
    (tmp_path / "below").mkdir()
    (tmp_path / "k").rename(tmp_path / "below" / "k")
    (tmp_path / "below" / "k").chmod(0o440)
    with pytest.raises(PermissionError, match="chmod 600"):  # not a credential itself
        read_key(tmp_path / "below" / "k")


def test_others_can_read_a_public_key_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        write_key(tmp_path / "k", KEY)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("k", "k.pub")]
    assert modes == [0o600, 0o644]


def private(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_other_files_are_not_keys(tmp_path):
    other = ec.generate_private_key(ec.SECP256R1())
    forms = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    locked = serialization.BestAvailableEncryption(b"a password")
    ours = ed25519.Ed25519PrivateKey.generate()
    write_key(tmp_path / "good", KEY)
    good = (tmp_path / "good").read_bytes()
    files = [
        b"",
        b"\xff\xfe",
        KEY.public_key.encode(),
        good[:-30],
        other.private_bytes(serialization.Encoding.PEM, *forms),
        ours.private_bytes(serialization.Encoding.PEM, forms[0], locked),
        ours.private_bytes(serialization.Encoding.DER, *forms),
    ]
    for i, content in enumerate(files):
        with pytest.raises(ValueError, match="expected a key of a party"):
            read_key(private(tmp_path / f"k{i}", content))
    with pytest.raises(ValueError, match="more than 10000 bytes"):
        read_key(private(tmp_path / "large", good + b" " * 10_000))
    with pytest.raises(FileNotFoundError):
        read_key(tmp_path / "absent")
    with pytest.raises((IsADirectoryError, PermissionError)):
        read_key(tmp_path)
    for content in (b"", good, KEY.public_key.encode()[:-1], b"\xff" * 80):
        with pytest.raises(ValueError, match="not a public key"):
            read_public_key(private(tmp_path / "pub", content))
