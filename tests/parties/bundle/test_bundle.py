"""Bundles: exact round trips of every model class, and refusal of everything that is not one."""

import hashlib
import io
import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium import Channel, DiscriminationFreePricer, NeuralModel, RandomizedResponse
from fairpremium.documents import canonical_json
from fairpremium.errors import BundleError, FairPremiumError, ModelFileError
from fairpremium.models import BoostedModel
from fairpremium.parties.bundle._archive import Archive, write_archive
from fairpremium.parties.bundle._bundle import _DOMAIN, MEMBERS, load_bundle, write_bundle
from fairpremium.parties.bundle._selftest import _coarse, compute_prices, draw_selftest, feature_ranges
from fairpremium.parties.protocol._key_chain import LARGEST_CHAIN, KeyChain, ServiceKey, read_trusted_keys
from fairpremium.parties.protocol._keys import new_key

KEY, OTHER = new_key(), new_key()
TRUSTED = [OTHER.verify_key, KEY.verify_key]
GENERAL = Channel([[0.8, 0.3], [0.2, 0.7]], groups=["F", "M"])
RANGES = {"age": (18, 80), "value": (0.5, 40)}


def portfolio(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 81, n),
            "value": rng.uniform(0.5, 40, n),
            "area": rng.choice(["urban", "rural", "ü – x"], n),
            "new": rng.random(n) < 0.3,
            "class": pd.Categorical(rng.choice([3, 1, 2], n)),
        }
    )
    D = rng.choice(["F", "M"], n)
    y = rng.poisson(np.exp(-1 + 0.01 * X["age"] + 0.4 * (D == "M"))).astype(float)
    return X, y, D


def fit(**options):
    X, y, D = portfolio()
    channel = RandomizedResponse(["F", "M"], keep=0.9)
    chosen = {"family": "poisson", "channel": channel, "random_state": 0, "pooling": 1.0, **options}
    S = D if chosen["channel"] is None else chosen["channel"].privatize(D, rng=1)
    return DiscriminationFreePricer(**chosen).fit(X, y, sensitive=S)


def keys(n):
    return pa.array([hashlib.sha256(str(i).encode()).digest()[:16] for i in range(n)], pa.binary(16))


def premiums_of(pricer, X, level=0.95):
    return pa.table({"key": keys(len(X)), **compute_prices(pricer, X, level)})


@pytest.fixture(scope="module")
def linear():
    return fit(correction="inverse")


@pytest.fixture(scope="module")
def premiums(linear):
    return premiums_of(linear, portfolio(200, seed=1)[0])


@pytest.fixture(scope="module")
def good(linear, premiums, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "good.zip"
    write(path, linear, premiums)
    return path


MANIFEST = {"study": "motor", "epsilon": 2.2, "versions": {"fairpremium": "0.1.0"}, "log": {"seq": 7, "hash": "ab"}}


PLAIN = [name for name in MEMBERS if name != "manifest.keys"]  # of a service whose key was never changed


def write(path, pricer, premiums, **changes):
    options = {"manifest": MANIFEST, "report_html": "<p>é</p>", "sign": KEY, "ranges": RANGES, **changes}
    return write_bundle(path, pricer=pricer, premiums=premiums, **options)


def members_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def pack(path, members, *, manifest=None, key=KEY, sign=True):
    """Pack members as the format wants them, with digests and signature made anew unless told otherwise."""
    members = dict(members)
    if manifest is not None:
        members["manifest.json"] = canonical_json(manifest)
    elif sign:
        told = json.loads(members["manifest.json"])
        told["members"] = {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            for name, content in members.items()
            if not name.startswith("manifest.")
        }
        members["manifest.json"] = canonical_json(told)
    if sign:
        members["manifest.sig"] = key.sign(_DOMAIN + members["manifest.json"])
    with path.open("wb") as file:
        write_archive(file, {n: members[n] for n in MEMBERS if n in members})
    return path


def check_of(path, trusted=TRUSTED):
    with pytest.raises(BundleError) as caught:
        load_bundle(path, keys=trusted)
    assert isinstance(caught.value, ModelFileError)
    return caught.value.check


# --- round trips -----------------------------------------------------------------------------------------------------


def same_prices(pricer, loaded):
    X = portfolio(300, seed=2)[0]
    for name, column in compute_prices(pricer, X, 0.9).items():
        np.testing.assert_array_equal(compute_prices(loaded, X, 0.9)[name], column)


@pytest.mark.parametrize(
    "options",
    [
        {"correction": "inverse"},
        {"correction": "inverse", "intervals": False},
        {"family": "normal", "channel": None},
        {"channel": GENERAL, "correction": "inverse", "reference": "uniform"},
        {"model": BoostedModel(max_rounds=15, replicates=3), "correction": "posterior"},
        {"model": BoostedModel(max_rounds=15, replicates=3), "correction": "likelihood", "family": "normal"},
        {"model": NeuralModel(hidden=(4,), max_epochs=4, replicates=2), "correction": "posterior"},
    ],
    ids=["linear", "without intervals", "true attribute", "general channel", "boosted", "boosted normal", "neural"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_model_class_survives(options, tmp_path):
    pricer = fit(**options)
    X = portfolio(100, seed=1)[0]
    table = premiums_of(pricer, X, 0.9)
    sha256 = write(tmp_path / "b.zip", pricer, table, level=0.9)
    assert sha256 == hashlib.sha256((tmp_path / "b.zip").read_bytes()).hexdigest()
    bundle = load_bundle(tmp_path / "b.zip", keys=TRUSTED)
    same_prices(pricer, bundle.pricer)
    assert bundle.premiums.equals(table)
    assert bundle.report == "<p>é</p>"
    assert bundle.key == KEY.verify_key
    assert {name: bundle.manifest[name] for name in MANIFEST} == MANIFEST
    assert bundle.manifest["groups"] == ["F", "M"]
    assert bundle.manifest["level"] == (0.9 if pricer.has_intervals_ else None)
    assert ("low" in bundle.premiums.column_names) is pricer.has_intervals_


def test_a_bundle_of_an_array_and_of_two_attributes(tmp_path):
    rng = np.random.default_rng(1)
    channel = Channel.product(RandomizedResponse(["F", "M"], keep=0.9), RandomizedResponse([1, 2], keep=0.9))
    X = rng.normal(size=(2000, 2))
    S = pd.DataFrame({"sex": rng.choice(["F", "M"], 2000), "area": rng.choice([1, 2], 2000)})
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, random_state=0).fit(
        X, X @ [1, 2] + 5, sensitive=S
    )
    write(tmp_path / "b.zip", pricer, premiums_of(pricer, X[:5]), ranges=None, report_html=None)
    bundle = load_bundle(tmp_path / "b.zip", keys=[KEY.verify_key])
    np.testing.assert_array_equal(bundle.pricer.predict(X), pricer.predict(X))
    assert bundle.report is None
    assert bundle.manifest["groups"] == [["F", 1], ["F", 2], ["M", 1], ["M", 2]]


def test_the_bytes_are_the_same_every_time(linear, premiums, good, tmp_path):
    write(tmp_path / "again.zip", linear, premiums)
    assert (tmp_path / "again.zip").read_bytes() == good.read_bytes()
    pq.write_table(premiums, tmp_path / "premiums.parquet")
    write(tmp_path / "file.zip", linear, tmp_path / "premiums.parquet")
    assert members_of(tmp_path / "file.zip")["premiums.parquet"] == (tmp_path / "premiums.parquet").read_bytes()
    assert load_bundle(tmp_path / "file.zip", keys=TRUSTED).premiums.equals(premiums)
    loaded = load_bundle(good, keys=TRUSTED).pricer
    write(tmp_path / "loaded.zip", loaded, premiums)
    assert (tmp_path / "loaded.zip").read_bytes() == good.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["again.zip", "file.zip", "loaded.zip", "premiums.parquet"]
    )


def test_any_zip_program_opens_it(good):
    with zipfile.ZipFile(good) as file:
        assert file.testzip() is None
        assert file.namelist() == PLAIN
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())
        manifest = json.loads(file.read("manifest.json"))
        for name, told in manifest["members"].items():
            content = file.read(name)
            assert told == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        assert KEY.verify_key.verify(file.read("manifest.sig"), _DOMAIN + file.read("manifest.json"))
        model = json.loads(file.read("model.json"))
    assert model["format"] == "fairpremium-pricer"
    levels = model["design"]["columns"][2]["levels"]
    assert manifest["features"][2] == {
        "name": "area",
        "kind": "category",
        "levels": levels,
    }
    assert manifest["columns"] == ["key", "premium", "low", "high", "unaware", "group F", "group M"]


def test_premiums_are_read_piece_by_piece(good, premiums):
    file = load_bundle(good, keys=TRUSTED).open_premiums()
    batches = list(file.iter_batches(batch_size=64, columns=["key", "premium"]))
    assert pa.Table.from_batches(batches).equals(premiums.select(["key", "premium"]))


# --- the self-test ---------------------------------------------------------------------------------------------------


def test_rows_of_the_self_test_are_nobodys(linear):
    table = draw_selftest(linear, RANGES, 0.95).to_pandas()
    assert len(table) == 64
    X, _, _ = portfolio()
    for name in ("area", "new", "class"):
        assert set(table[f"feature {name}"]) == set(X[name])
    for name, (low, high) in {"age": (10, 80), "value": (0, 40)}.items():
        column = table[f"feature {name}"]
        assert low <= column.min() < low + (high - low) / 8
        assert high - (high - low) / 8 < column.max() <= high
        assert not set(column) & set(X[name])
    again = draw_selftest(linear, RANGES, 0.95).to_pandas()
    pd.testing.assert_frame_equal(table, again)
    rows = table[[c for c in table if c.startswith("feature ")]].rename(columns=lambda c: c[8:])
    rows["class"] = rows["class"].astype("category")
    np.testing.assert_allclose(table["premium"], linear.predict(rows), rtol=1e-12)
    np.testing.assert_allclose(table["group M"], linear.predict_best_estimate(rows)["M"], rtol=1e-12)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ranges_are_rounded_outwards(low, width):
    high = low + width
    a, b = _coarse(low, high)
    slack = 1e-9 * max(1e-6, abs(low), abs(high))  # of floating point
    assert a <= low + slack
    assert b >= high - slack
    assert b - a <= 3 * width + slack
    step = 10.0 ** np.floor(np.log10(high - low))
    assert abs(a / step - round(a / step)) < 1e-3
    assert _coarse(low, low) == (low, low)


def test_ranges_are_read_from_parts(tmp_path):
    X, _, _ = portfolio()
    for i, part in enumerate((X[:700], X[700:])):
        pq.write_table(pa.Table.from_pandas(part.astype({"class": str})), tmp_path / f"{i}.parquet")
    found = feature_ranges(sorted(tmp_path.iterdir()), ["age", "value", "area", "new"])
    assert found == {name: (X[name].min(), X[name].max()) for name in ("age", "value")}


def test_corners_without_a_price_are_left_out(linear):
    table = draw_selftest(linear, {"age": (0, 6e4), "value": (0, 1)}, 0.95)
    assert np.isfinite(table.column("premium").to_numpy()).all()
    with pytest.raises(ValueError, match="Give them as ranges"):
        draw_selftest(linear, {"age": (1e9, 2e9)}, 0.95)
    for ends in ((1, 0), (0, float("inf")), (float("nan"), 1)):
        with pytest.raises(ValueError, match="finite numbers"):
            draw_selftest(linear, {"age": ends}, 0.95)


# --- what is not written ---------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_not_written(linear, premiums, tmp_path):
    path = tmp_path / "b.zip"
    with pytest.raises(ValueError, match="other columns"):
        write(path, linear, premiums.drop_columns(["low"]))
    with pytest.raises(ValueError, match="other columns"):
        write(path, linear, premiums.append_column("sex", premiums.column("premium")))
    with pytest.raises(ValueError, match="other types"):
        write(path, linear, premiums.set_column(0, "key", pa.array(range(len(premiums)))))
    with pytest.raises(ValueError, match=r"\['groups'\]"):
        write(path, linear, premiums, manifest={"groups": ["F"]})
    with pytest.raises(ValueError, match="not text"):
        write(path, linear, premiums, manifest={"counts": {9: 1, 10: 2}})
    with pytest.raises(ValueError, match=r"[Oo]ut of range float|nan"):
        write(path, linear, premiums, manifest={"epsilon": float("nan")})
    with pytest.raises(ValueError, match="level"):
        write(path, linear, premiums, level=1.5)
    assert list(tmp_path.iterdir()) == []
    write(path, linear, premiums, manifest={"groups": ["F", "M"], "level": 0.95})


# --- hostile files ---------------------------------------------------------------------------------------------------


def rezip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members if isinstance(members, list) else members.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/etc/passwd", "a/../../evil", "..\\evil", "C:\\evil", "model.json\0.txt"]
)
def test_paths_that_lead_elsewhere(good, tmp_path, name):
    (tmp_path / "b.zip").write_bytes(raw_zip([*entries_of(good), (name.encode(), 0, 0, 0o100644, b"x", 1)]))
    assert check_of(tmp_path / "b.zip") == "archive"
    raw = good.read_bytes().replace(b"report.html", name.encode()[:11].ljust(11, b"x"))
    (tmp_path / "c.zip").write_bytes(raw)
    assert check_of(tmp_path / "c.zip") == "archive"
    assert {p.name for p in tmp_path.iterdir()} == {"b.zip", "c.zip"}


@pytest.mark.parametrize("name", ["model.pkl", "evil.py", "report.htm", "Model.json", "model.json ", ".", ""])
def test_unknown_members(good, tmp_path, name):
    (tmp_path / "b.zip").write_bytes(raw_zip([*entries_of(good), (name.encode(), 0, 0, 0o100644, b"x", 1)]))
    assert check_of(tmp_path / "b.zip") == "archive"


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_is_not_opened(good, tmp_path):
    bomb = pickle.dumps(Evil(str(tmp_path / "evil")))
    members = members_of(good)
    assert check_of(rezip(tmp_path / "a.zip", {**members, "model.pkl": bomb})) == "archive"
    assert check_of(pack(tmp_path / "b.zip", {**members, "model.json": bomb})) == "model"  # signed, even
    assert check_of(pack(tmp_path / "c.zip", {**members, "premiums.parquet": bomb})) == "schema"
    assert check_of(pack(tmp_path / "d.zip", {**members, "selftest.parquet": bomb})) == "self-test"
    (tmp_path / "e.zip").write_bytes(bomb)
    assert check_of(tmp_path / "e.zip") == "archive"
    assert not (tmp_path / "evil").exists()
    pickle.loads(bomb)
    assert (tmp_path / "evil").exists()  # had anyone opened it


def raw_zip(entries):
    """A zip file from (name, method, flags, mode, bytes as stored, size as told)."""
    body, central = b"", b""
    for name, method, flags, mode, stored, size in entries:
        head = struct.pack("<5H3I2H", 20, flags, method, 0, 0x21, zlib.crc32(stored), len(stored), size, len(name), 0)
        tail = struct.pack("<3H2I", 0, 0, 0, mode << 16, len(body))
        central += b"PK\1\2" + struct.pack("<H", 3 << 8 | 20) + head + tail + name
        body += b"PK\3\4" + head + name + stored
    n = len(entries)
    return body + central + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, len(central), len(body), 0)


def entries_of(path, **changes):
    plain = [(n.encode(), 0, 0, 0o100644, c, len(c)) for n, c in members_of(path).items()]
    return [changes.get(name.decode().split(".")[0], (name, *rest)) for name, *rest in plain]


def test_the_hostile_zips_here_differ_from_good_ones_in_one_thing_only(good):
    assert raw_zip(entries_of(good)) == good.read_bytes()


def test_a_bomb_of_ten_gigabytes(good, tmp_path):
    zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
    mebibyte = zeros.compress(bytes(1 << 20)) + zeros.flush(zlib.Z_FULL_FLUSH)
    bomb = mebibyte * 10_240 + zeros.flush()
    start = time.process_time()
    for told in (1 << 20, 2**32 - 1, len(bomb), 0):
        report = (b"report.html", 8, 0, 0o100644, bomb, told)
        (tmp_path / "b.zip").write_bytes(raw_zip(entries_of(good, report=report)))
        assert check_of(tmp_path / "b.zip") == "archive"
    assert time.process_time() - start < 5


def test_links_encryption_and_other_oddities(good, tmp_path):
    content = members_of(good)["report.html"]
    size = len(content)
    for report in [
        (b"report.html", 0, 0, 0o120777, content, size),  # a link
        (b"report.html", 0, 0, 0o040755, content, size),  # a folder
        (b"report.html", 0, 0, 0o104755, content, size),  # set-uid
        (b"report.html", 0, 1, 0o100644, content, size),  # encrypted
        (b"report.html", 0, 8, 0o100644, content, size),  # sizes after the data
        (b"report.html", 0, 0x800, 0o100644, content, size),
        (b"report.html", 12, 0, 0o100644, content, size),  # bzip2
        (b"report.html", 14, 0, 0o100644, content, size),  # lzma
        (b"report.html", 99, 0, 0o100644, content, size),
        (b"report.html", 0, 0, 0o100644, content, size + 1),
        (b"report.html", 0, 0, 0o100644, content, 0),
    ]:
        (tmp_path / "b.zip").write_bytes(raw_zip(entries_of(good, report=report)))
        assert check_of(tmp_path / "b.zip") == "archive"
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert check_of(rezip(tmp_path / "c.zip", members_of(good), compression)) == "archive"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_come_twice_are_missing_or_in_another_order(good, tmp_path):
    members = list(members_of(good).items())
    for name, content in members:
        assert check_of(rezip(tmp_path / "b.zip", [*members, (name, content)])) == "archive"
        assert check_of(rezip(tmp_path / "b.zip", [(name, b"x"), *members])) == "archive"
        without = [(n, c) for n, c in members if n != name]
        (tmp_path / "d.zip").write_bytes(raw_zip([(n.encode(), 0, 0, 0o100644, c, len(c)) for n, c in without]))
        assert check_of(tmp_path / "d.zip") == ("digests" if name == "report.html" else "archive")
    assert check_of(rezip(tmp_path / "c.zip", members[::-1])) == "archive"
    assert check_of(rezip(tmp_path / "c.zip", [])) == "archive"


def test_hidden_and_overlapping_bytes(good, tmp_path):
    raw, path = good.read_bytes(), tmp_path / "b.zip"
    at = raw.index(b"PK\1\2")
    for changed in [
        b"#!/bin/sh\n" + raw,  # zip programs forgive this
        raw + b"x",
        raw[:-2] + b"\x01\x00x",  # a comment
        raw[:at] + b"hidden" + raw[at:],
        raw + raw,
        raw[:at] + raw[at:].replace(b"PK\1\2", b"PK\3\4"),
    ]:
        path.write_bytes(changed)
        assert check_of(path) == "archive"
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        info = file.getinfo("report.html")
    moved = raw[at:].replace(struct.pack("<I", info.header_offset) + b"report.html", bytes(4) + b"report.html")
    path.write_bytes(raw[:at] + moved)  # two members share their bytes
    assert check_of(path) == "archive"


@pytest.mark.parametrize("name", PLAIN)
def test_a_checksum_that_is_wrong_everywhere(good, tmp_path, name):
    crc = zlib.crc32(members_of(good)[name])
    changed = good.read_bytes().replace(struct.pack("<I", crc), struct.pack("<I", crc ^ 1))  # in both headers
    assert sum(a != b for a, b in zip(changed, good.read_bytes(), strict=True)) == 2
    (tmp_path / "b.zip").write_bytes(changed)
    assert check_of(tmp_path / "b.zip") == "archive"


def test_every_truncation(good, tmp_path):
    raw, path = good.read_bytes(), tmp_path / "b.zip"
    for size in [*range(0, 200), *range(0, len(raw), 997), *range(len(raw) - 600, len(raw))]:
        path.write_bytes(raw[:size])
        assert check_of(path) == "archive"


def test_a_file_of_zeros_and_no_file(tmp_path):
    path = tmp_path / "b.zip"
    with path.open("wb") as file:
        file.truncate(10 << 30)  # sparse
    assert check_of(path) == "archive"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    assert check_of(path) == "archive"
    with pytest.raises(FileNotFoundError):
        load_bundle(tmp_path / "absent", keys=TRUSTED)


# --- a service that changed its key ---------------------------------------------------------------------------------


OLD, NEWER, NEWEST = new_key(), new_key(), new_key()
CHAIN = KeyChain(OLD.verify_key).extend(OLD, NEWER, since="2026-01-01", size=5)
CHAIN = CHAIN.extend(NEWER, NEWEST, since="2026-02-01", size=9)


def test_a_bundle_of_a_later_key_is_checked_with_trust_in_any_of_the_chain(linear, premiums, tmp_path):
    path = tmp_path / "b.zip"
    write(path, linear, premiums, sign=ServiceKey(NEWEST, CHAIN))
    assert list(members_of(path)) == list(MEMBERS)
    for trusted in (OLD, NEWER, NEWEST):
        assert load_bundle(path, keys=[trusted.verify_key]).key == NEWEST.verify_key
    assert check_of(path, [KEY.verify_key]) == "signature"


def test_an_old_bundle_is_checked_with_the_keys_of_today(linear, premiums, tmp_path):
    (tmp_path / "service.key.pub").write_text(CHAIN.text())
    trusted = read_trusted_keys(tmp_path / "service.key.pub")
    for name in ("seq", "size"):  # 0.1.0 wrote seq
        write(tmp_path / "b.zip", linear, premiums, sign=OLD, manifest={**MANIFEST, "log": {name: 5}})
        assert load_bundle(tmp_path / "b.zip", keys=[trusted]).key == OLD.verify_key


def test_a_stolen_former_key_signs_nothing_that_is_newer_than_its_end(linear, premiums, tmp_path):
    path = tmp_path / "b.zip"
    for log in ({"seq": 6}, {"size": 6}, {"size": "5"}, {"size": None}, {"size": True}, {}, [], None):
        write(path, linear, premiums, sign=OLD, manifest={**MANIFEST, "log": log})
        for trusted in ([CHAIN], [OLD.verify_key, CHAIN], [CHAIN, KeyChain(OLD.verify_key)]):
            assert check_of(path, trusted) == "signature"
        assert load_bundle(path, keys=[OLD.verify_key]).key == OLD.verify_key  # nothing is known of its end


def test_a_stolen_former_key_has_no_successor_but_the_known_one(linear, premiums, tmp_path):
    """The thief signs a key of his own, and shows the chain to it: behind the stolen key, or before it."""
    path, mine = tmp_path / "b.zip", new_key()
    behind = KeyChain(OLD.verify_key).extend(OLD, mine, since="2026-01-01", size=5)
    before = KeyChain(mine.verify_key).extend(mine, OLD, since="2025-01-01", size=10**6)
    before = KeyChain(mine.verify_key, [*before.successions, *CHAIN.successions])
    known = KeyChain(OLD.verify_key, CHAIN.successions[:1])
    lost = KeyChain(OLD.verify_key).extend(None, NEWER, since="2026-01-01", size=5)
    for shown in (behind, before):
        write(path, linear, premiums, sign=ServiceKey(mine, shown))
        for trusted in ([CHAIN], [known], [lost], [OLD.verify_key, CHAIN], [lost, OLD.verify_key]):
            assert check_of(path, trusted) == "signature"
    assert check_of(path, [NEWEST.verify_key]) == "signature"  # before: it counts no longer than the stolen one
    write(path, linear, premiums, sign=ServiceKey(NEWEST, CHAIN))
    for trusted in ([CHAIN], [known], [OLD.verify_key, known]):
        assert load_bundle(path, keys=trusted).key == NEWEST.verify_key


def test_a_chain_in_a_bundle_gives_no_trust_by_itself(linear, premiums, tmp_path):
    """An attacker brings a chain of his own, one that names a trusted key, or one that is no chain."""
    path, mine = tmp_path / "b.zip", new_key()
    write(path, linear, premiums, sign=ServiceKey(mine, KeyChain(mine.verify_key).extend(mine, KEY, since="", size=1)))
    members = members_of(path)
    assert check_of(path, [OLD.verify_key]) == "signature"
    forged = KeyChain(KEY.verify_key).extend(None, mine, since="", size=1)  # says that the old key was lost
    for text in (forged.text(), CHAIN.text(), "", "[" * 1000, f"{mine.public_key}\n{{}}\n", "é"):
        pack(path, {**members, "manifest.keys": text.encode()}, key=mine)
        assert check_of(path, [KEY.verify_key]) == "signature"
    pack(path, {**members, "manifest.keys": b"x" * (LARGEST_CHAIN + 1)}, key=mine)
    assert check_of(path, [KEY.verify_key]) == "archive"


# --- changed content -------------------------------------------------------------------------------------------------


def test_only_trusted_keys_count(good, tmp_path):
    assert check_of(good, trusted=[OTHER.verify_key]) == "signature"
    for keys_given in ([], [KEY.public_key], [None], CHAIN):
        with pytest.raises(ValueError, match="VerifyKey"):
            load_bundle(good, keys=keys_given)
    other = pack(tmp_path / "b.zip", members_of(good), key=OTHER)
    assert check_of(other) == "signature"  # a good signature, but the manifest names another key
    assert load_bundle(good, keys=TRUSTED).key == KEY.verify_key


def test_signatures_of_other_things(linear, premiums, good, tmp_path):
    members = members_of(good)
    write(tmp_path / "other.zip", linear, premiums, manifest={"study": "another"})
    other = members_of(tmp_path / "other.zip")
    swapped = {**members, "manifest.sig": other["manifest.sig"]}
    assert check_of(pack(tmp_path / "b.zip", swapped, sign=False)) == "signature"
    plain = {**members, "manifest.sig": KEY.sign(members["manifest.json"])}  # without the domain
    assert check_of(pack(tmp_path / "c.zip", plain, sign=False)) == "signature"
    for signature in (b"", bytes(63), bytes(64), members["manifest.sig"] + b"\0"):
        cut = pack(tmp_path / "d.zip", {**members, "manifest.sig": signature}, sign=False)
        assert check_of(cut) == ("signature" if len(signature) <= 64 else "archive")


def test_swapped_members(linear, good, premiums, tmp_path):
    members = members_of(good)
    write(tmp_path / "other.zip", fit(correction="inverse", pooling=9.0), premiums)
    other = members_of(tmp_path / "other.zip")
    assert other["model.json"] != members["model.json"]
    for name in ("model.json", "selftest.parquet"):
        assert check_of(pack(tmp_path / "b.zip", {**members, name: other[name]}, sign=False)) == "digests"
        assert check_of(pack(tmp_path / "b.zip", {**members, name: other[name]})) == "self-test"
    crossed = {**members, "premiums.parquet": members["selftest.parquet"]}
    assert check_of(pack(tmp_path / "c.zip", crossed, sign=False)) == "digests"
    assert check_of(pack(tmp_path / "c.zip", crossed)) == "schema"


def digit_changed(model):
    """A model with another coefficient and a sha256 of its own that is right again."""
    document = json.loads(model)
    document.pop("sha256")
    document["coefficients"][0][0] += 1e-6
    document["sha256"] = hashlib.sha256(canonical_json(document)).hexdigest()
    return canonical_json(document)


def test_a_changed_digit(good, tmp_path):
    members = members_of(good)
    changed = {**members, "model.json": digit_changed(members["model.json"])}
    assert check_of(pack(tmp_path / "a.zip", changed, sign=False)) == "digests"
    manifest = json.loads(members["manifest.json"])
    manifest["members"]["model.json"]["sha256"] = hashlib.sha256(changed["model.json"]).hexdigest()
    changed["manifest.json"] = canonical_json(manifest)
    assert check_of(pack(tmp_path / "b.zip", changed, sign=False)) == "signature"
    assert check_of(pack(tmp_path / "c.zip", changed)) == "self-test"  # with a signature that is good


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"version": 2}, "version"),
        ({"version": "1"}, "version"),
        ({"version": None}, "version"),
        ({"format": "fairpremium-pricer"}, "version"),
        ({"members": {}}, "digests"),
        ({"members": None}, "digests"),
        ({"groups": ["F", "N"]}, "schema"),
        ({"features": []}, "schema"),
        ({"columns": ["key"]}, "schema"),
        ({"level": 2}, "schema"),
        ({"level": "high"}, "schema"),
        ({"level": 0.9}, "self-test"),
        ({"key_id": OTHER.key_id}, "signature"),
        ({"key_id": None}, "signature"),
    ],
)
def test_signed_manifests_that_are_wrong(good, tmp_path, change, check):
    members = members_of(good)
    manifest = {**json.loads(members["manifest.json"]), **change}
    assert check_of(pack(tmp_path / "b.zip", members, manifest=manifest)) == check


@pytest.mark.parametrize("name", [None, *PLAIN[2:]])
def test_a_manifest_with_other_digests(good, tmp_path, name):
    members = members_of(good)
    manifest = json.loads(members["manifest.json"])
    if name is None:
        manifest["members"]["evil.txt"] = {"sha256": "", "size": 0}
    else:
        manifest["members"][name]["size"] += 1
    assert check_of(pack(tmp_path / "b.zip", members, manifest=manifest)) == "digests"


NO_MANIFEST = [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"format": "fairpremium-bundle"}']
NO_MANIFEST += [b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":1e999}']


@pytest.mark.parametrize("text", NO_MANIFEST)
def test_signed_texts_that_are_no_manifest(good, tmp_path, text):
    members = {**members_of(good), "manifest.json": text}
    members["manifest.sig"] = KEY.sign(_DOMAIN + text)
    assert check_of(pack(tmp_path / "b.zip", members, sign=False)) == "version"
    members["model.json"] = text
    assert check_of(pack(tmp_path / "c.zip", {**members_of(good), "model.json": text})) == "model"


def test_a_self_test_that_fails(good, tmp_path):
    members = members_of(good)
    table = pq.read_table(io.BytesIO(members["selftest.parquet"]))

    def changed(table):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return check_of(pack(tmp_path / "b.zip", {**members, "selftest.parquet": sink.getvalue()}))

    for name in ("premium", "low", "high", "unaware", "group F", "group M"):
        values = table.column(name).to_numpy().copy()
        values[63] += 3e-9 * max(abs(values[63]), np.abs(values).mean())
        at = table.column_names.index(name)
        assert changed(table.set_column(at, name, pa.array(values))) == "self-test"
        values[63] = np.nan
        assert changed(table.set_column(at, name, pa.array(values))) == "self-test"
        assert changed(table.set_column(at, name, pa.array([None] * 64, pa.float64()))) == "self-test"
        assert changed(table.drop_columns([name])) == "self-test"
    assert changed(table.slice(0, 0)) == "self-test"
    area = table.column_names.index("feature area")
    assert changed(table.set_column(area, "feature area", pa.array(["moon"] * 64))) == "self-test"
    assert changed(table.set_column(0, "feature age", pa.array(["old"] * 64))) == "self-test"


@pytest.fixture(scope="module")
def bytes_of(good):
    return good.read_bytes()


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_bit_of_a_bundle_may_change(good, bytes_of, tmp_path_factory, data):
    at = data.draw(st.integers(0, len(bytes_of) - 1) | st.integers(max(0, len(bytes_of) - 500), len(bytes_of) - 1))
    changed = bytearray(bytes_of)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    path = good.with_name("flipped.zip")
    path.write_bytes(changed)
    assert check_of(path) in ("archive", "signature", "digests")


def test_no_byte_of_the_directory_may_change(good, bytes_of):
    path = good.with_name("changed.zip")
    start = bytes_of.index(b"PK\1\2")
    with zipfile.ZipFile(good) as file:
        infos = file.infolist()
    heads = [i for info in infos for i in range(info.header_offset, info.header_offset + 30 + len(info.filename))]
    for at in [*heads, *range(start, len(bytes_of))]:
        for value in {0, 255, bytes_of[at] ^ 1} - {bytes_of[at]}:
            path.write_bytes(bytes_of[:at] + bytes([value]) + bytes_of[at + 1 :])
            with pytest.raises(BundleError):
                Archive(path, MEMBERS)


@given(st.binary(max_size=400), st.booleans())
@settings(deadline=None)
def test_any_bytes_are_no_bundle(good, content, ending):
    path = good.with_name("any.zip")
    path.write_bytes(content + (good.read_bytes()[-400:] if ending else b""))
    assert check_of(path) == "archive"


# --- large bundles ---------------------------------------------------------------------------------------------------


def test_loading_does_not_hold_the_premiums_in_memory(linear, tmp_path):
    n = 400_000
    rng = np.random.default_rng(0)
    columns = {name: rng.random(n) for name in ("premium", "low", "high", "unaware", "group F", "group M")}
    raw = pa.py_buffer(rng.bytes(16 * n))
    table = pa.table({"key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), n, [None, raw]), **columns})
    pq.write_table(table, tmp_path / "p.parquet", compression="none")
    size = (tmp_path / "p.parquet").stat().st_size
    assert size > 20_000_000
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    write(tmp_path / "b.zip", linear, tmp_path / "p.parquet")
    bundle = load_bundle(tmp_path / "b.zip", keys=TRUSTED)
    assert tracemalloc.get_traced_memory()[1] < size / 2
    assert pa.total_allocated_bytes() - before < size / 2
    tracemalloc.stop()
    assert bundle.premiums.equals(table)


def test_a_bundle_that_is_changed_after_loading(good, tmp_path):
    path = tmp_path / "b.zip"
    path.write_bytes(good.read_bytes())
    bundle = load_bundle(path, keys=TRUSTED)
    at = path.read_bytes().index(b"PAR1", len(path.read_bytes()) // 2) + 100
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(BundleError, match=r"premiums\.parquet"):
        _ = bundle.premiums


def test_an_archive_has_a_largest_size(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**31)  # a file with a hole takes no space
    with pytest.raises(ValueError, match="at most"):
        write_archive(io.BytesIO(), {"premiums.parquet": tmp_path / "large"})


def test_bundle_error_is_in_the_tree():
    assert issubclass(BundleError, FairPremiumError)
    assert issubclass(BundleError, ValueError)
