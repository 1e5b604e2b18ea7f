"""Many processes fight for one session; bench/contention.py judges them by their effects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "contention.py"


@pytest.mark.parametrize("home", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_there_are_never_two_admitted_writers(request: pytest.FixtureRequest, home: str):
    store = ["--store", request.getfixturevalue("server_url")] if home == "postgres" else []
    done = subprocess.run(
        [sys.executable, str(BENCH), "--processes", "8", "--seconds", "2", *store],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": os.defpath},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "grants" in done.stdout
    assert "WRONG" not in done.stdout
