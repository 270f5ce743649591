"""The benchmark of the service runs, and finds nothing wrong, at a small size."""

from __future__ import annotations

import subprocess
import sys


def test_the_load_on_a_small_scale(project_root):
    command = [sys.executable, str(project_root / "benchmarks" / "service.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| errors | 0 |" in done.stdout
    assert "| reports offered per second | 50 |" in done.stdout
