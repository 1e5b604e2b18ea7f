"""The door through which formats come in: the same for ours and for those of other packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import UnknownFormat
from clew.formats.registry import all_formats, broken_formats, format_names, get_format
from doors import installed, make_distribution


@pytest.fixture
def tiny_package(tmp_path: Path) -> Path:
    return make_distribution(tmp_path / "site", "tiny-for-clew", {"tiny": "clew_format_tiny:FORMAT"})


def test_a_format_of_another_package_is_one_of_all(tiny_package: Path) -> None:
    before = format_names()
    assert "tiny" not in before
    with installed(tiny_package):
        assert format_names() == tuple(sorted((*before, "tiny")))
        assert get_format("tiny").title == "Tiny"
        assert get_format("tiny") in all_formats()
    assert format_names() == before


def test_an_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(UnknownFormat, match="no agent is called 'nobody'") as told:
        get_format("nobody")
    assert "claude" in told.value.hint


@pytest.mark.parametrize(
    "value",
    ["no_such_module_at_all:FORMAT", "clew_format_tiny:NOTHING", "clew_format_tiny:NAME", "broken_format:FORMAT"],
)
def test_one_that_does_not_load_is_told_and_hides_no_other(tiny_package: Path, tmp_path: Path, value: str) -> None:
    bad = make_distribution(tmp_path / "bad", "bad-for-clew", {"bad": value})
    (bad / "broken_format.py").write_text("raise RuntimeError('not today')\n")
    with installed(tiny_package, bad):
        assert "bad" in format_names()
        assert "tiny" in [form.name for form in all_formats()]
        assert [error.concerns["agent"] for error in broken_formats()] == ["bad"]
        with pytest.raises(UnknownFormat) as told:
            get_format("bad")
        assert value in told.value.message


def test_another_package_does_not_take_the_name_of_one_of_ours(tmp_path: Path) -> None:
    site = make_distribution(tmp_path / "site", "impostor", {"claude": "clew_format_tiny:FORMAT"})
    with installed(site):
        assert get_format("claude").name == "claude"
