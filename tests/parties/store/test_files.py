"""Files named by digest: whole or not at all, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from fairpremium.parties import Problem
from fairpremium.parties.store._files import FileStore

POINTS = ["file.created", "file.written", "file.synced", "file.renamed", "file.folder_synced"]
CONTENT = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "files")


def rubbish(store: FileStore) -> list[str]:
    return sorted(p.name for p in store.folder.iterdir() if p.name.startswith(".incoming"))


def downgrade(path, seconds=7200):
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize("form", ["bytes", "memoryview of words", "path"])
def test_every_form_of_content_gets_the_same_name(store, form, tmp_path):
    if form == "bytes":
        content = CONTENT
    elif form == "memoryview of words":
        content = memoryview(CONTENT).cast("I")
    else:
        content = tmp_path / "upload"
        content.write_bytes(CONTENT)
    assert store.put(content) == DIGEST
    assert store.path(DIGEST).read_bytes() == CONTENT
    assert not (tmp_path / "upload").exists()
    assert list(store) == [DIGEST]
    assert rubbish(store) == []


def test_the_same_content_twice_is_one_file(store):
    assert store.put(CONTENT) == store.put(CONTENT) == DIGEST
    assert list(store) == [DIGEST]
    assert store.path(DIGEST).read_bytes() == CONTENT


def test_a_second_put_heals_a_damaged_file(store):
    store.put(CONTENT)
    store.path(DIGEST).write_bytes(b"damaged")
    store.put(CONTENT)
    assert store.path(DIGEST).read_bytes() == CONTENT


def test_files_are_for_their_owner_only(store, tmp_path):
    loose = tmp_path / "loose"
    loose.write_bytes(b"loose")
    loose.chmod(0o666)
    for content in (CONTENT, loose):
        assert stat.S_IMODE(store.path(store.put(content)).stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_pieces_arrive_one_by_one(store):
    with store.receive(limit=len(CONTENT)) as incoming:
        for start in range(0, len(CONTENT), 999):
            incoming.write(CONTENT[start : start + 999])
        assert incoming.size == len(CONTENT)
        assert incoming.path.read_bytes() == CONTENT  # a check may read it before it is kept
        assert list(store) == []
        assert incoming.sha256 == incoming.commit() == DIGEST
    assert store.path(DIGEST).read_bytes() == CONTENT


def test_what_is_not_kept_leaves_nothing(store):
    with store.receive() as incoming:
        incoming.write(CONTENT)
    with pytest.raises(TypeError), store.receive() as incoming:
        incoming.write("not bytes")
    assert list(store) == rubbish(store) == []


def test_the_disk_can_be_written_while_the_file_is_checked(store, monkeypatch):
    with store.receive() as incoming:
        incoming.write(CONTENT)
        with incoming.syncing():
            assert incoming.path.read_bytes() == CONTENT
        synced = []
        monkeypatch.setattr(os, "fsync", synced.append)
        assert incoming.commit() == DIGEST
        assert len(synced) == 1  # the folder
    assert store.path(DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize("problem", [None, "bad-keys"])
def test_the_disk_is_full_while_the_file_is_checked(store, monkeypatch, problem):
    def check() -> None:
        if problem:
            raise Problem(problem)

    monkeypatch.setenv("FAIRPREMIUM_FULL_AT", "file.written")
    incoming = store.receive()
    incoming.write(CONTENT)
    with pytest.raises(Problem) as caught, incoming, incoming.syncing():
        check()
    assert caught.value.code == "storage-full"  # whatever a check says of a file that is gone
    assert list(store) == rubbish(store) == []


def test_one_byte_too_many(store):
    for pieces in ([b"123456"], [b"12345", b"6"]):
        with store.receive(5) as incoming:
            incoming.write(b"")
            with pytest.raises(Problem) as caught:
                incoming.write(*pieces)
        assert caught.value.code == "too-large"
    with store.receive(5) as incoming:
        incoming.write(b"12345")
        assert incoming.commit() in store
    assert rubbish(store) == []


@pytest.mark.parametrize("name", ["", "..", "A" * 64, "0" * 63, "0" * 65, f"../{'0' * 64}", "0" * 64 + "\n"])
def test_only_digests_are_names(store, name):
    for question in (store.path, store.delete, store.__contains__):
        with pytest.raises(ValueError, match="64 hexadecimal"):
            question(name)


# --- full disks ---


@pytest.mark.parametrize("name", POINTS)
def test_a_full_disk_is_a_problem_and_leaves_no_rubbish(store, name, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_FULL_AT", name)
    with pytest.raises(Problem) as caught:
        store.put(CONTENT)
    assert caught.value.code == "storage-full"
    assert rubbish(store) == []
    monkeypatch.delenv("FAIRPREMIUM_FULL_AT")
    assert store.put(CONTENT) == DIGEST


def test_a_write_that_the_kernel_refuses(store, monkeypatch):
    """/dev/full is a device without space."""
    really_open = os.open

    def open_full(path, flags, *mode):
        file = really_open(path, flags, *mode)
        if ".incoming" in str(path):
            os.dup2(really_open("/dev/full", os.O_WRONLY), file)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_full)
        with pytest.raises(Problem) as caught:
            store.put(CONTENT)
    assert caught.value.code == "storage-full"
    assert list(store) == rubbish(store) == []


def test_a_quota_counts_as_full_and_other_failures_do_not(store, monkeypatch):
    for number, expected in ((errno.EDQUOT, Problem), (errno.EIO, OSError)):

        def fail(*_, number=number):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(expected):
                store.put(CONTENT)
        assert list(store) == rubbish(store) == []


# --- crashes: one Python that forks a process for each kill ---

KILLS = """
import json, os, sys
from pathlib import Path
from fairpremium.parties.store._files import FileStore
folder, points, content = Path(sys.argv[1]), sys.argv[2].split(), bytes(range(256)) * 1000
for name in points:
    child = os.fork()
    if child == 0:
        os.environ["FAIRPREMIUM_KILL_AT"] = name
        FileStore(folder / name).put(content)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps([name, os.WIFSIGNALED(status) and os.WTERMSIG(status), os.WIFEXITED(status)]))
"""


def test_a_kill_at_any_point_leaves_the_whole_file_or_none(tmp_path):
    ends = [*POINTS, "file.created:2", "elsewhere"]
    child = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path), " ".join(ends)], capture_output=True, text=True, check=True
    )
    outcomes = {name: (died, ended) for name, died, ended in map(json.loads, child.stdout.splitlines())}
    for name in ends:
        expected = (signal.SIGKILL, False) if name in POINTS else (False, True)
        assert outcomes[name] == expected, name
        store = FileStore(tmp_path / name)
        is_there = name in ("file.renamed", "file.folder_synced") or name not in POINTS
        assert list(store) == ([DIGEST] if is_there else []), name
        assert (len(rubbish(store)) == 0) is is_there, name
        if is_there:
            assert store.path(DIGEST).read_bytes() == CONTENT
        assert store.put(CONTENT) == DIGEST  # the retry
        assert store.path(DIGEST).read_bytes() == CONTENT
        store.sweep({DIGEST}, older_than=0)
        assert list(store) == [DIGEST]
        assert rubbish(store) == []


# --- deletion ---


def test_delete_says_whether_it_was_there(store):
    store.put(CONTENT)
    assert DIGEST in store
    assert store.delete(DIGEST, unless=lambda: True) is False
    assert store.delete(DIGEST) is True
    assert store.delete(DIGEST) is False
    assert DIGEST not in store


def test_sweep_removes_old_orphans_and_rests_that_nobody_writes_to(store, tmp_path):
    kept, orphan, fresh = (store.put(bytes([i])) for i in range(3))
    stranger = store.folder / "README"
    stranger.write_text("not ours")
    slow, moved, cut_off = store.receive(), store.receive(), store.receive()
    (tmp_path / "draft").write_bytes(CONTENT)
    moved.take(tmp_path / "draft")
    for path in (store.path(kept), store.path(orphan), stranger, slow.path, moved.path):
        downgrade(path)
    cut_off._close()  # as if its process had been killed
    assert store.sweep({kept}, older_than=3600) == 2
    assert set(store) == {kept, fresh}
    assert rubbish(store) == sorted([slow.path.name, moved.path.name])  # an upload may be slow
    assert stranger.exists()
    moved.discard()
    assert slow.commit() in store


def test_sweep_takes_young_orphans_of_a_kind_at_once(store):
    kept, orphan, other = (store.put(content) for content in (b"a1", b"a2", b"b1"))
    assert store.sweep({kept}, older_than=3600, at_once=lambda path: path.read_bytes().startswith(b"a")) == 1
    assert set(store) == {kept, other}
    assert orphan not in store


def test_an_orphan_that_is_sent_again_is_young_again(store):
    store.put(CONTENT)
    downgrade(store.path(DIGEST))
    slow = store.receive()
    slow.write(CONTENT)
    downgrade(slow.path)
    slow.commit()
    assert store.sweep(set(), older_than=3600) == 0
    assert DIGEST in store


def test_sweep_and_delete_wait_for_those_who_hold_the_store(store):
    """A file between put and the commit of its reference cannot be taken for an orphan."""
    references: set[str] = set()
    may_commit = threading.Event()
    has_put = threading.Event()

    def upload() -> None:
        with store.hold():
            store.put(CONTENT)
            has_put.set()
            may_commit.wait(120)
            references.add(DIGEST)

    uploader = threading.Thread(target=upload)
    uploader.start()
    assert has_put.wait(120)
    sweeper = threading.Thread(target=store.sweep, args=(lambda: set(references), 0))
    deleter = threading.Thread(target=store.delete, args=(DIGEST, lambda: DIGEST in references))
    for thread in (sweeper, deleter):
        thread.start()
    sweeper.join(0.2)
    deleter.join(0.2)
    assert sweeper.is_alive()
    assert deleter.is_alive()
    may_commit.set()
    for thread in (uploader, sweeper, deleter):
        thread.join(120)
    assert list(store) == [DIGEST]


def test_many_writers_of_one_content(store):
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.extend(store.put(CONTENT) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [DIGEST] * 80
    assert rubbish(store) == []
