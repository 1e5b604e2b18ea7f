"""The page on runs: its operation runs, its table of codes and its record types are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clew.cli.run_settings import ReviewSettings, review_settings
from clew.errors import RunError
from clew.runs import admission, log
from clew.runs.review.agents import HEADLESS
from clew.runs.review.rules import load_layer

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "runs.md").read_text("utf-8")


def block(language: str, holding: str = "") -> str:
    found = [
        text for text in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if holding in text
    ]
    assert len(found) == 1
    return str(found[0])


def test_an_operation_takes_less_than_sixty_lines_and_can_be_resumed(tmp_path: Path) -> None:
    code = block("python")
    assert len(code.splitlines()) < 60
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/runs.md", "exec"), names)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("one two three")
    (texts / "b.txt").write_bytes(b"\xff")
    first = names["count_words"](texts, tmp_path / "data")
    assert first.manifest.terminal_state == "partial"
    assert [i.result for i in first.items.values() if i.result] == [{"words": 3}]
    second = names["count_words"](texts, tmp_path / "data", first.manifest.run_id)
    assert [i.path for i in second.manifest.coverage.reused] == ["a.txt"]
    (texts / "b.txt").write_text("now a text")
    with pytest.raises(RunError, match="its input changed"):
        names["count_words"](texts, tmp_path / "data", first.manifest.run_id)


def test_the_rule_file_of_the_page_loads(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(block("toml", "[[rule]]"))
    layer = load_layer(tmp_path / "rules.toml")
    assert layer.rule[0].merge
    assert layer.exclude == ("**/generated/**",)


def test_the_settings_of_the_page_load(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text(block("toml", "[review]"))
    told = review_settings({}, {}, tmp_path / "clew.toml")
    assert told == ReviewSettings(agent="claude", model="opus", jobs=4)


def test_every_agent_that_can_be_asked_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| `\1 ?", PAGE, re.MULTILINE)) == HEADLESS.keys()


def test_every_row_and_record_is_on_the_page() -> None:
    assert admission.__doc__ is not None
    rows = re.findall(r"^    (a|b|\d+) +(\w+)", admission.__doc__, re.MULTILINE)
    assert len(rows) == 14
    for row, code in rows:
        assert f"| {row} | `{code}` |" in PAGE
    for name in vars(log):
        if name.startswith(("RUN_", "ITEM_", "RESUME_")):
            assert f"`{getattr(log, name)}`" in PAGE
