"""Forks, spawned processes, threads and copies draw reports of their own."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading

import pytest

from fairpremium.privacy import RandomizedResponse

N = 400  # two honest draws of 400 values agree with probability below (0.5 + 2^-20)^400, about 1e-120
CHANNEL = RandomizedResponse(["F", "M"], keep=0.501)


def draw(channel=CHANNEL):
    return "".join(channel.privatize(["F"] * N).tolist())


def test_calls_and_copies():
    copies = [CHANNEL, copy.copy(CHANNEL), copy.deepcopy(CHANNEL), pickle.loads(pickle.dumps(CHANNEL))]
    draws = [draw(channel) for channel in copies for _ in range(3)]
    assert len(set(draws)) == 12


def test_threads():
    draws = []
    threads = [threading.Thread(target=lambda: draws.append(draw())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(draws)) == 16


FORK = """
import os
from fairpremium.privacy import RandomizedResponse
channel = RandomizedResponse(["F", "M"], keep=0.501)
def draw():
    return "".join(channel.privatize(["F"] * 400).tolist())
draw()  # so that a buffer, if there were one, would be full before the fork
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (draw() + "\\n" + draw() + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
os.write(1, (draw() + "\\n").encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: run on Linux or macOS")
def test_forks():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=240, check=True
    )
    draws = result.stdout.split()
    assert len(draws) == len(set(draws)) == 9


SPAWN = """
import multiprocessing
from fairpremium.privacy import RandomizedResponse

def draw(channel):
    return "".join(channel.privatize(["F"] * 400).tolist())

if __name__ == "__main__":
    channel = RandomizedResponse(["F", "M"], keep=0.501)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(*pool.map(draw, [channel] * 6, chunksize=1), sep="\\n")
"""


def test_spawn(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=True)
    draws = result.stdout.split()
    assert len(draws) == len(set(draws)) == 6


def test_the_check_would_notice_a_seed():
    repeated = ["".join(CHANNEL.privatize(["F"] * N, rng=0).tolist()) for _ in range(2)]
    assert len(set(repeated)) == 1
