"""Surroundings that are nobody's home, a runner, and golden texts (rewritten when CLEW_ACCEPT is set)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clew.cli.main import cli
from clew.cli.settings import Surroundings

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    return Surroundings(
        {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")},
        tmp_path / "work",
        tmp_path / "home",
        lambda: tmp_path / "config",
        lambda: tmp_path / "data",
    )


@pytest.fixture
def invoke(around: Surroundings) -> Callable[..., Result]:
    """Runs a command line; `env` is added to the surroundings' environment."""

    def run(*words: str, env: dict[str, str] | None = None) -> Result:
        obj = around._replace(env={**around.env, **(env or {})})
        return CliRunner().invoke(cli, list(words), obj=obj)

    return run


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with the golden one of that name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("CLEW_ACCEPT"):
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return compare
