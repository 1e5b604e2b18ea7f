"""Vibe's own store is gone on with by a further generation: what was there stays byte for byte, but for CURRENT."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew_corpus import Case, own_cases

STORES = [case for case in own_cases("vibe") if next(case.home.glob(".vibe/logs/session/unified/*/CURRENT"), None)]


def _files(home: Path) -> dict[str, bytes]:
    folder = home / ".vibe"
    return {str(path.relative_to(home)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _say(path: Path) -> None:
    """Appends a turn as Codex itself would."""
    with path.open("a", encoding="utf-8") as file:
        for role, kind, text in (("user", "input_text", "One more thing."), ("assistant", "output_text", "Yes?")):
            payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
            line = {"timestamp": "2026-12-01T09:30:00.000Z", "type": "response_item", "payload": payload}
            file.write(json.dumps(line) + "\n")


def test_there_are_stores_to_test_with() -> None:
    assert STORES


@pytest.mark.parametrize("case", STORES, ids=str)
def test_later_turns_stand_in_a_further_generation_beside_the_old_ones(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    before = _files(home)
    clock = FixedClock(datetime(2026, 12, 1, 9, 0, tzinfo=UTC))
    with Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=clock) as ctx:
        old = open_session(ctx, f"vibe:{case.session_id}")
        made = convert(ctx, f"vibe:{case.session_id}", to="codex")
        _say(Path(made.to.path))
        back = convert(ctx, f"codex:{made.to.session_id}", to="vibe")
        now = open_session(ctx, f"vibe:{back.to.session_id}")
    after = _files(home)
    changed = {name for name, data in before.items() if after.get(name) != data}
    assert back.to.session_id == case.session_id
    assert {Path(name).name for name in changed} == {"CURRENT"}, "what was there is as it was"
    assert set(after) > set(before)
    assert now.keys[: len(old.keys)] == old.keys
    assert [message.text for message in now.session.messages[-2:]] == ["One more thing.", "Yes?"]
