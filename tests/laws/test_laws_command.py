"""`python -m clew.laws`: what it says where there is nothing to test, and what it puts under the laws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clew.laws import laws_of
from clew.laws.__main__ import main


def test_without_a_name_it_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: python -m clew.laws NAME")


def test_a_name_that_nobody_registered_is_told_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nobody", "-x"]) == 2
    told = capsys.readouterr().err
    assert "no agent is called 'nobody'" in told
    assert "claude" in told


def test_a_format_that_only_reads_is_under_no_law_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aider"]) == 2
    told = capsys.readouterr().err
    assert "Aider has no writer yet" in told
    assert "tested by hand" in told


def test_a_format_is_paired_with_its_companions_both_ways() -> None:
    given: dict[str, list[Any]] = {}
    metafunc: Any = SimpleNamespace(
        fixturenames=["form", "pair", "forms"],
        parametrize=lambda name, values, ids: given.update({name: list(zip(ids, values, strict=True))}),
    )
    laws_of("pi")(metafunc)
    assert [name for name, _ in given["form"]] == ["pi"]
    assert sorted(name for name, _ in given["pair"]) == ["claude-pi", "codex-pi", "pi-claude", "pi-codex"]
    assert [form.name for form in given["forms"][0][1]] == ["pi", "claude", "codex"]
