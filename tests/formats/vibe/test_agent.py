"""The real Vibe takes in what clew wrote, and goes on with what clew appended to its own store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.lab.judge import judge_sees
from agents.lab.needs import need_agent
from agents.lab.script import Call, Step, Text, say
from clew.formats.marks import Names
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew.verbs.show import show_groups
from clew_corpus import own_case

pytestmark = pytest.mark.agent


def make_context(home: Path, minute: int) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC))
    return Context(Home(home), home / "clew-data", cwd=home, clock=clock)


def test_there_home_again_and_there_once_more(tmp_path: Path) -> None:
    claude, vibe = need_agent("claude"), need_agent("vibe")
    case = own_case("claude", "surrogate")
    home, folder = case.copy_home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    ref = f"claude:{case.session_id}"
    with make_context(home, 0) as ctx:
        made = convert(ctx, ref, to="vibe", cwd=str(folder))
    first = vibe.resume(home, folder, made.to.session_id, "One more.", [say("Done.")])
    assert first.resumed, first.refusal
    assert first.session_id not in (None, made.to.session_id), "Vibe goes on under an id of its own"
    assert {row["id"] for row in vibe.list_sessions(home, folder)} == {first.session_id, made.to.session_id}
    with make_context(home, 5) as ctx:
        back = convert(ctx, f"vibe:{first.session_id}", to="claude")
    assert back.to.session_id == case.session_id
    call = Call("Bash", {"command": "echo again", "description": "x"}, "toolu_again1")
    second = claude.resume(home, folder, case.session_id, "Again.", [Step([Text("I print."), call]), say("Printed.")])
    assert second.resumed, second.refusal
    with make_context(home, 10) as ctx:
        again = convert(ctx, ref, to="vibe")
        said = [
            {
                "role": group.role,
                "text": group.text,
                "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in group.tool_calls],
                "results": [r.text for r in group.tool_results],
            }
            for group in show_groups(open_session(ctx, ref).session.messages)
        ]
    assert again.report.mode == "prefix"
    third = vibe.resume(home, folder, again.to.session_id, "And here again.", [say("Fine.")])
    assert third.session_id == first.session_id
    assert judge_sees(third, said, rename=Names().legal) == []
    with make_context(home, 15) as ctx:
        home_again = convert(ctx, f"vibe:{third.session_id}", to="claude")
        last = open_session(ctx, ref).session.messages[-2:]
    assert home_again.to.session_id == case.session_id
    assert [m.text for m in last] == ["And here again.", "Fine."]
