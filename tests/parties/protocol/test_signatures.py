"""Signed requests: our reading of RFC 9421 against another implementation, and every way to get it wrong."""

import asyncio
import base64
import hashlib
import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import http_message_signatures as library
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.parties.clients._signed_auth import SignedAuth
from fairpremium.parties.protocol._keys import SigningKey, new_key
from fairpremium.parties.protocol._problems import Problem
from fairpremium.parties.protocol._signatures import (
    EMPTY_SHA256,
    Verified,
    content_digest,
    request_url,
    sign_request,
    verify_request,
)

KEY, OTHER = new_key(), new_key()
KNOWN = {KEY.key_id: KEY.verify_key, OTHER.key_id: OTHER.verify_key}
URL = "https://third.example:8443/v1/studies/s-1/reports/00ff?wait=30&after=7"
BODY = hashlib.sha256(b"a body").digest()
NOW = 1_800_000_000
NONCE = "abcdefgh-_234567"
COVERED = ("@method", "@authority", "@path", "@query", "content-digest")


def signed(method="PUT", url=URL, body=BODY, key=KEY, created=NOW, nonce=NONCE):
    return sign_request(method, url, {}, body, key, created=created, nonce=nonce)


def verify(headers, method="PUT", url=URL, now=NOW, lookup=KNOWN.get):
    return verify_request(method, url, headers, lookup, now)


def code_of(headers, **changes):
    with pytest.raises(Problem) as caught:
        verify(headers, **changes)
    return caught.value.code


def test_what_is_signed_is_verified():
    assert verify(signed()) == Verified(KEY.key_id, NONCE, NOW, BODY)
    assert verify(signed(body=None)).body_sha256 == EMPTY_SHA256
    assert verify(signed(key=OTHER)).key_id == OTHER.key_id


def test_by_default_time_and_nonce_are_new():
    first, second = (verify_request("GET", URL, sign_request("GET", URL, {}, None, KEY), KNOWN.get, time.time())
                     for _ in range(2))  # fmt: skip
    assert first.nonce != second.nonce
    assert abs(first.created - time.time()) < 60


@pytest.mark.parametrize(
    "form",
    [
        lambda h: list(h.items()),
        lambda h: [(k.lower().encode(), v.encode()) for k, v in h.items()],
        lambda h: {k.upper(): f" {v}\t" for k, v in h.items()},
        lambda h: httpx.Headers(h),
    ],
)
def test_headers_in_every_form(form):
    assert verify(form(signed())).key_id == KEY.key_id


# --- the other implementation ----------------------------------------------------------------------------------------


class Resolver(library.HTTPSignatureKeyResolver):
    def resolve_public_key(self, key_id):
        return KNOWN[key_id]._key

    def resolve_private_key(self, key_id):
        return KEY._SigningKey__key


ED25519 = library.algorithms.ED25519
TOKENS = st.text("abcXYZ019-._~%2B!$&'()*+,;=:@", max_size=8).filter(lambda t: re.fullmatch(r"(?:[^%]|%2B)*", t))
URLS = st.builds(
    lambda scheme, host, port, path, query: f"{scheme}://{host}{port}/{'/'.join(path)}{query}",
    st.sampled_from(["http", "https"]),
    st.sampled_from(["Third.Example", "127.0.0.1", "[::1]", "a", "[2001:DB8::80]"]),
    st.sampled_from(["", ":80", ":443", ":8080", ":8443"]),
    st.lists(TOKENS, max_size=4),
    st.one_of(st.just(""), st.just("?"), TOKENS.map(lambda t: f"?{t}"), TOKENS.map(lambda t: f"?a={t}?/")),
)
METHODS = st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH"])
NONCES = st.text("abcXYZ019-_", min_size=16, max_size=64)


@given(METHODS, URLS, st.binary(max_size=20), NONCES)
def test_the_library_accepts_our_signatures(method, url, body, nonce):
    headers = sign_request(method, url, {}, hashlib.sha256(body).digest(), KEY, nonce=nonce)
    message = SimpleNamespace(method=method, url=url, headers=headers)
    verifier = library.HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=Resolver())
    (result,) = verifier.verify(message, body=body, require_components=COVERED)
    assert result.nonce == nonce
    assert result.parameters["keyid"] == KEY.key_id
    assert result.body == body


@given(METHODS, URLS, st.binary(max_size=20), NONCES, st.sampled_from(["sig1", "fp", "*x.y-z_"]))
def test_we_accept_the_signatures_of_the_library(method, url, body, nonce, label):
    message = SimpleNamespace(method=method, url=url, headers={})
    signer = library.HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=Resolver())
    signer.sign(
        message,
        key_id=KEY.key_id,
        created=datetime.fromtimestamp(NOW, UTC),
        nonce=nonce,
        label=label,
        covered_component_ids=COVERED,
        body=body,
    )
    found = verify_request(method, url, message.headers, KNOWN.get, NOW)
    assert found == Verified(KEY.key_id, nonce, NOW, hashlib.sha256(body).digest())


def test_the_vector_of_rfc_9421_b_2_6():
    der = base64.b64decode("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF")
    key = SigningKey(load_der_private_key(der, None))
    covered = '("date" "@method" "@path" "@authority" "content-type" "content-length")'
    parameters = f'{covered};created=1618884473;keyid="test-key-ed25519"'
    base = (
        '"date": Tue, 20 Apr 2021 02:07:55 GMT\n"@method": POST\n"@path": /foo\n"@authority": example.com\n'
        f'"content-type": application/json\n"content-length": 18\n"@signature-params": {parameters}'
    )
    signature = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    assert base64.b64encode(key.sign(base.encode())).decode() == signature
    assert key.verify_key.verify(base64.b64decode(signature), base.encode())
    # ... and it covers neither the query nor the body, so that we refuse it as it stands.
    headers = {
        "Date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "Content-Type": "application/json",
        "Content-Length": "18",
        "Content-Digest": content_digest(hashlib.sha256(b'{"hello": "world"}').digest()),
        "Signature-Input": f"sig-b26={parameters}",
        "Signature": f"sig-b26=:{signature}:",
    }
    lookup = {"test-key-ed25519": key.verify_key}.get
    assert code_of(headers, method="POST", url="https://example.com/foo", now=1618884473, lookup=lookup) == (
        "bad-signature"
    )


# --- every signed part -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        URL.replace("s-1", "s-2"),
        URL.replace("00ff", "00fF"),
        URL.replace("00ff", "00f%66"),
        URL.replace("/v1", "//v1"),
        URL.replace("wait=30", "wait=31"),
        URL.replace("wait=30&after=7", "after=7&wait=30"),
        URL.split("?")[0],
        URL + "&",
        URL + "?",
        URL.replace("third", "fourth"),
        URL.replace(":8443", ""),
        URL.replace(":8443", ":8444"),
        URL.replace("third", "user@third"),
        URL.replace("https://third", "https://evil.example/third"),
    ],
)
def test_another_target_is_refused(url):
    assert code_of(signed(), url=url) == "bad-signature"


def test_the_same_authority_may_be_written_in_two_ways():
    headers = signed(url="https://Third.Example:443/a")
    for url in ("https://third.example/a", "https://THIRD.example:443/a", "http://third.example/a"):
        assert verify(headers, url=url).key_id == KEY.key_id
    assert code_of(headers, url="http://third.example:443/a") == "bad-signature"
    assert code_of(headers, url="https://third.example:80/a") == "bad-signature"


@pytest.mark.parametrize("method", ["POST", "GET", "put", "PUT ", "", "PUT\n", "É"])
def test_another_method_is_refused(method):
    assert code_of(signed(), method=method) == "bad-signature"


CHANGES = [
    ("Content-Digest", content_digest(BODY), content_digest(EMPTY_SHA256)),
    ("Signature-Input", f"created={NOW}", f"created={NOW + 1}"),
    ("Signature-Input", NONCE, NONCE[:-1] + "8"),
    ("Signature-Input", KEY.key_id, OTHER.key_id),
    ("Signature-Input", KEY.key_id, "ed25519-0000000000000000"),
    ("Signature-Input", "fp=", "gp="),
    ("Signature", "fp=", "gp="),
    ("Signature-Input", ";alg=", ";tag="),
    ("Signature-Input", '"ed25519"', '"ed25518"'),
    ("Signature-Input", '"ed25519"', '"hmac-sha256"'),
    ("Signature-Input", '"ed25519"', "ed25519"),
    ("Signature-Input", ';alg="ed25519"', ""),
    ("Signature-Input", ';alg="ed25519"', ';alg="ed25519";expires=1'),
    ("Signature-Input", ';alg="ed25519"', f";expires={NOW + 10}"),
    ("Signature-Input", ';alg="ed25519"', f";created={NOW}"),
    ("Signature-Input", ';alg="ed25519"', f';nonce="{NONCE}"'),
    ("Signature-Input", ";created=", ";Created="),
    ("Signature-Input", f";created={NOW}", ""),
    ("Signature-Input", f"created={NOW}", f'created="{NOW}"'),
    ("Signature-Input", f"created={NOW}", f"created={NOW}.0"),
    ("Signature-Input", f"created={NOW}", f"created=0{NOW}"),
    ("Signature-Input", f"created={NOW}", f"created=-{NOW}"),
    ("Signature-Input", f"created={NOW}", "created"),
    ("Signature-Input", f"created={NOW}", f"created={10**15}"),
    ("Signature-Input", f"created={NOW}", "created=１800000000"),
    ("Signature-Input", f'nonce="{NONCE}"', f"nonce=:{NONCE}:"),
    ("Signature-Input", NONCE, NONCE[:15]),
    ("Signature-Input", NONCE, "a" * 65),
    ("Signature-Input", NONCE, NONCE[:-1] + "+"),
    ("Signature-Input", NONCE, NONCE[:-1] + "\\"),
    ("Signature-Input", KEY.key_id, ""),
    ("Signature-Input", KEY.key_id, "k" * 65),
    ("Signature-Input", '"@method" ', ""),
    ("Signature-Input", '"@authority" ', ""),
    ("Signature-Input", '"@path" ', ""),
    ("Signature-Input", '"@query" ', ""),
    ("Signature-Input", ' "content-digest"', ""),
    ("Signature-Input", '"@method"', '"@method" "@method"'),
    ("Signature-Input", '"@method"', '"@method";req'),
    ("Signature-Input", '"@query"', '"@query-param";name="wait"'),
    ("Signature-Input", '"@method" "@authority"', '"@authority" "@method"'),
    ("Signature-Input", '"content-digest"', '"content-digest";sf'),
    ("Signature-Input", '"content-digest"', '"Content-Digest"'),
    ("Signature-Input", "fp=", "fp=(), gp="),
    ("Content-Digest", "sha-256", "sha-512"),
    ("Content-Digest", "sha-256", "md5"),
    ("Content-Digest", "=:", f"=:{'A' * 43}=:, sha-256=:"),
    ("Content-Digest", "sha-256", f"sha-512=:{'A' * 86}==:, sha-256"),
    ("Content-Digest", "sha-256=:", "sha-256=:AA"),
    ("Content-Digest", "=:", "=:\n"),
]
HONEST = {f"created={NOW + 1}", NONCE[:-1] + "8", content_digest(EMPTY_SHA256)}  # other requests, if signed as such


def signed_again(headers):
    """Sign whatever the fields now say, as RFC 9421 would have it."""
    values = {"@method": "PUT", "@authority": "third.example:8443", "@path": "/v1/studies/s-1/reports/00ff"}
    values |= {"@query": "?wait=30&after=7", "content-digest": headers["Content-Digest"]}
    parameters = headers["Signature-Input"].partition("=")[2]
    covered = re.findall(r'"([^"]*)"([^ )]*)', parameters.partition(")")[0])
    lines = [f'"{name}"{rest}: {values.get(name.lower(), "30")}' for name, rest in covered]
    base = "\n".join([*lines, f'"@signature-params": {parameters}'])
    return {**headers, "Signature": f"fp=:{base64.b64encode(KEY.sign(base.encode())).decode()}:"}


def test_signing_again_by_hand_is_signing():
    assert signed_again(signed()) == signed()


@pytest.mark.parametrize(("field", "old", "new"), CHANGES, ids=range(len(CHANGES)))
def test_another_form_is_refused_even_if_well_signed(field, old, new):
    headers = signed()
    headers[field] = headers[field].replace(old, new, 1)
    again = signed_again(headers)
    if new in HONEST:
        assert verify(again).key_id == KEY.key_id
    elif field != "Signature":
        assert code_of(again) == "bad-signature"


@pytest.mark.parametrize(("field", "old", "new"), CHANGES, ids=range(len(CHANGES)))
def test_another_field_is_refused(field, old, new):
    headers = signed()
    assert old in headers[field]
    headers[field] = headers[field].replace(old, new, 1)
    assert code_of(headers) == "bad-signature"


def test_no_byte_of_the_signature_may_change():
    headers = signed()
    raw = base64.b64decode(headers["Signature"][4:-1])
    for i in range(len(raw)):
        for bit in (1, 128):
            changed = raw[:i] + bytes([raw[i] ^ bit]) + raw[i + 1 :]
            field = {"Signature": f"fp=:{base64.b64encode(changed).decode()}:"}
            assert code_of({**headers, **field}) == "bad-signature"
    for changed in (b"", raw[:-1], raw + b"\0", bytes(64), raw[32:] + raw[:32]):
        field = {"Signature": f"fp=:{base64.b64encode(changed).decode()}:"}
        assert code_of({**headers, **field}) == "bad-signature"


def test_a_value_has_one_spelling():
    headers = signed()
    for field, pad in (("Signature", "==:"), ("Content-Digest", "=:")):
        stem = headers[field].removesuffix(pad)
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        twin = alphabet[alphabet.index(stem[-1]) + 1]
        same = base64.b64decode(stem[:-1].split(":")[1] + twin + pad[:-1])
        assert same == base64.b64decode(stem.split(":")[1] + pad[:-1])
        assert code_of({**headers, field: stem[:-1] + twin + pad}) == "bad-signature"


@pytest.mark.parametrize("field", ["Content-Digest", "Signature-Input", "Signature"])
def test_a_field_that_comes_twice_is_refused(field):
    headers = signed()
    pairs = [*headers.items(), (field.lower(), headers[field])]
    assert code_of(pairs) == "bad-signature"
    assert code_of(httpx.Headers(pairs)) == "bad-signature"
    assert code_of({**headers, field: f"{headers[field]}, {headers[field]}"}) == "bad-signature"


def test_two_signatures_are_refused_even_if_both_are_good():
    a, b = signed(), signed(key=OTHER)
    both = {f: f"{a[f]}, {b[f].replace('fp=', 'gp=', 1)}" for f in ("Signature-Input", "Signature")}
    assert code_of({**a, **both}) == "bad-signature"


def test_requests_without_a_signature():
    headers = signed()
    assert code_of({}) == "unsigned"
    assert code_of({"Content-Digest": headers["Content-Digest"], "Authorization": "Bearer x"}) == "unsigned"
    for field in headers:
        assert code_of({k: v for k, v in headers.items() if k != field}) == "bad-signature"
        assert code_of({**headers, field: ""}) == "bad-signature"


def test_the_window():
    headers = signed()
    for now in (NOW - 300, NOW, NOW + 300):
        assert verify(headers, now=now).created == NOW
    for now in (NOW - 300.5, NOW + 300.5, 0, 1e18, float("nan"), float("inf")):
        assert code_of(headers, now=now) == "stale"


def test_fields_of_absurd_size_are_refused_at_once():
    headers = signed()
    start = time.process_time()
    for field in headers:
        for filler in ("a" * 2_000_000, ";a=1" * 500_000, "fp=" * 500_000, '"' * 2_000_000, headers[field] * 10_000):
            assert code_of({**headers, field: filler}) == "bad-signature"
            assert code_of({**headers, field: headers[field] + filler}) == "bad-signature"
    assert code_of(headers, url=URL + "a" * 2_000_000) == "bad-signature"
    assert time.process_time() - start < 2


# --- whatever the headers are ----------------------------------------------------------------------------------------

ANY = st.text(max_size=300) | st.binary(max_size=300)
NAMES = st.sampled_from(["Signature", "Signature-Input", "Content-Digest", b"signature", b"signature-input"])
PIECES = st.sampled_from(
    [
        "fp=",
        *COVERED,
        "(",
        ")",
        '"',
        ";",
        "created=",
        str(NOW),
        'nonce="',
        NONCE,
        'keyid="',
        KEY.key_id,
        'alg="ed25519"',
        "sha-256=:",
        "A" * 43 + "=:",
        "A" * 86 + "==:",
        ", ",
        " ",
        "\n",
        "\0",
        "\xff",
        "€",
    ]
)


@given(st.lists(st.tuples(NAMES | ANY, ANY | st.lists(PIECES, max_size=30).map("".join)), max_size=6))
@settings(max_examples=300)
def test_any_headers_give_a_problem(headers):
    assert code_of(headers) in ("unsigned", "bad-signature", "stale")


@given(st.text(max_size=50), st.text(max_size=300))
def test_any_method_and_address_give_a_problem(method, url):
    assert code_of(signed(), method=method, url=url) == "bad-signature"


@given(st.data())
@settings(max_examples=500)
def test_no_character_of_a_signed_request_may_change(data):
    headers = signed()
    parts = {"method": "PUT", "url": URL, **headers}
    name = data.draw(st.sampled_from(sorted(parts)))
    at = data.draw(st.integers(0, len(parts[name]) - 1))
    new = data.draw(st.characters(max_codepoint=300) | st.just(""))
    parts[name] = parts[name][:at] + new + parts[name][at + 1 :]
    method, url = parts.pop("method"), parts.pop("url")
    try:
        found = verify(parts, method=method, url=url)
    except Problem as problem:
        found = problem.code
    if isinstance(found, str):
        assert found in ("bad-signature", "stale")
    else:  # what may change: white space around a field, capitals of the host, the scheme
        assert found == Verified(KEY.key_id, NONCE, NOW, BODY)
        assert method == "PUT"
        assert url.lower().replace("http:", "https:") == URL.lower()
        assert url.split("/v1")[1] == URL.split("/v1")[1]
        assert {k: v.strip(" \t") for k, v in parts.items()} == headers


def test_an_unknown_key_looks_like_a_wrong_one():
    headers = signed()

    def problem(lookup):
        with pytest.raises(Problem) as caught:
            verify(headers, lookup=lookup)
        return caught.value

    unknown, wrong = problem(lambda _: None), problem(lambda _: OTHER.verify_key)
    assert unknown.to_dict() == wrong.to_dict()
    assert unknown.__cause__ is wrong.__cause__ is None

    def seconds(lookup):
        start = time.perf_counter()
        with pytest.raises(Problem):
            verify(headers, lookup=lookup)
        return time.perf_counter() - start

    # The least of many times is what the work takes; without the stand-in it would be less by nine tenths. Both are
    # timed in turn: what slows this machine for a while slows both.
    times = [(seconds(lambda _: None), seconds(lambda _: OTHER.verify_key)) for _ in range(400)]
    unknown_least, wrong_least = map(min, zip(*times, strict=True))
    assert 0.6 < unknown_least / wrong_least < 1.7


# --- signing ---------------------------------------------------------------------------------------------------------


def test_signing_refuses_what_could_not_be_verified():
    for method in ("get", "", "GET\n"):
        with pytest.raises(ValueError, match="method"):
            signed(method=method)
    for url in ("/v1/log", "ftp://a/b", "https:///b", "https://a/b#c", "https://a/b c", "https://ä/b", "https://u@a/b"):
        with pytest.raises(ValueError, match="url"):
            signed(url=url)
    for nonce in ("", "a" * 15, "a" * 65, "a" * 15 + '"', "a" * 16 + "\n"):
        with pytest.raises(ValueError, match="nonce"):
            signed(nonce=nonce)
    for body in (b"", b"a body", BODY.hex()):
        with pytest.raises(ValueError, match="32 bytes"):
            signed(body=body)


def test_a_given_digest_must_be_that_of_the_body():
    given_digest = {"content-digest": content_digest(BODY)}
    headers = sign_request("PUT", URL, given_digest, None, KEY, created=NOW)
    assert verify(headers).body_sha256 == BODY
    assert sign_request("PUT", URL, given_digest, BODY, KEY)["Content-Digest"] == content_digest(BODY)
    with pytest.raises(ValueError, match="expected that of the body"):
        sign_request("PUT", URL, given_digest, EMPTY_SHA256, KEY)
    with pytest.raises(ValueError, match="sha-256 alone"):
        sign_request("PUT", URL, {"Content-Digest": "sha-512=:AA==:"}, None, KEY)


# --- httpx and ASGI --------------------------------------------------------------------------------------------------


async def service(scope, receive, send):
    """A service that answers with what the signature says, or with the problem."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    try:
        found = verify_request(scope["method"], request_url(scope), scope["headers"], KNOWN.get, time.time())
        assert found.body_sha256 == hashlib.sha256(body).digest()
        status, answer = 200, found.key_id
    except Problem as problem:
        status, answer = problem.status, problem.code
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": answer.encode()})


def ask(method, url, auth=None, **options):
    async def go():
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, auth=auth or SignedAuth(KEY)) as client:
            return await client.request(method, url, **options)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("method", "url", "options"),
    [
        ("GET", URL, {}),
        ("GET", "http://127.0.0.1/", {}),
        ("GET", "http://third.example", {}),
        ("GET", "http://third.example/a?", {}),
        ("DELETE", "http://[::1]:9/a%2Fb/%C3%A9?x=%20+&y", {}),
        ("PUT", URL, {"content": b"a body"}),
        ("PUT", URL, {"json": {"a": 1}}),
        ("POST", URL, {"params": {"q": "ä b&c", "r": ["1", "2"]}, "content": "text"}),
        ("PUT", URL, {"headers": {"Host": "another.example"}, "content": b"x"}),
    ],
)
def test_a_client_signs_what_the_service_reads(method, url, options):
    answer = ask(method, url, **options)
    assert (answer.status_code, answer.text) == (200, KEY.key_id)


def test_a_client_without_a_key_is_told_so():
    assert ask("GET", URL, auth=("user", "password")).text == "unsigned"
    assert ask("GET", URL, auth=SignedAuth(new_key())).text == "bad-signature"


def test_a_streamed_body_needs_its_digest():
    parts = [b"first ", b"second"]

    async def stream():
        for part in parts:
            yield part

    digest = content_digest(hashlib.sha256(b"".join(parts)).digest())
    assert ask("PUT", URL, content=stream(), headers={"Content-Digest": digest}).text == KEY.key_id
    with pytest.raises(ValueError, match="streamed body"):
        ask("PUT", URL, content=stream())


def test_the_sync_client_signs_every_sending_anew():
    seen = []

    def handler(request):
        found = verify_request(request.method, str(request.url), request.headers, KNOWN.get, time.time())
        assert found.body_sha256 == hashlib.sha256(request.read()).digest()
        seen.append(found.nonce)
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(handler), auth=SignedAuth(KEY)) as client:
        request = client.build_request("PUT", URL, content=b"again and again")
        client.send(request)
        client.send(request)
        digest = content_digest(hashlib.sha256(b"ab").digest())
        client.put(URL, content=iter([b"a", b"b"]), headers={"content-digest": digest})
        client.get(URL)
    assert len(set(seen)) == 4


def scope(headers, **others):
    return {"scheme": "http", "raw_path": b"/a%2Fb", "query_string": b"x=1", "headers": headers, **others}


def test_the_address_of_an_asgi_request():
    direct = [(b"host", b"third.example:8000"), (b"x-forwarded-host", b"evil.example")]
    assert request_url(scope(direct)) == "http://third.example:8000/a%2Fb?x=1"
    assert request_url(scope(direct), behind_proxy=True) == "https://evil.example/a%2Fb?x=1"
    assert request_url(scope(direct[:1], query_string=b""), behind_proxy=True) == "https://third.example:8000/a%2Fb"
    headers = signed(url="https://third.example/a%2Fb?x=1")
    proxied = scope([(b"host", b"10.0.0.7:8000"), (b"x-forwarded-host", b"third.example")])
    assert verify(headers, url=request_url(proxied, behind_proxy=True)).key_id == KEY.key_id
    assert code_of(headers, url=request_url(proxied)) == "bad-signature"
    for bad in ([], [(b"host", b"a"), (b"host", b"a")]):
        with pytest.raises(Problem):
            request_url(scope(bad))
    with pytest.raises(Problem):
        request_url(scope([(b"host", b"a"), *[(b"x-forwarded-host", b"b")] * 2]), behind_proxy=True)
