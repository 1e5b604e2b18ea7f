"""Fixtures of the runs' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.shop import Shop, make_shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A repository with a base, and a topic on top of it."""
    return make_shop(tmp_path)
