"""The real pi forks what clew wrote for it, and the fork comes home as well."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.lab.needs import need_agent
from agents.lab.script import say
from clew.formats.protocol import Home
from clew.laws.stored import group_keys
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew_corpus import own_case

pytestmark = pytest.mark.agent


def make_context(home: Path, minute: int) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC))
    return Context(Home(home), home / "clew-data", cwd=home, clock=clock)


def test_a_fork_made_by_pi_keeps_its_marks_and_comes_home(tmp_path: Path) -> None:
    pi = need_agent("pi")
    case = own_case("codex", "tools")
    home, folder = case.copy_home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    with make_context(home, 0) as ctx:
        said = open_session(ctx, f"codex:{case.session_id}").session.messages
        made = convert(ctx, f"codex:{case.session_id}", to="pi", cwd=str(folder))
    seen = pi.fork(home, folder, made.to.session_id, "Another way, please.", [say("Another way.")])
    assert seen.resumed, seen.refusal
    assert seen.session_id not in (None, made.to.session_id)
    with make_context(home, 5) as ctx:
        fork = open_session(ctx, f"pi:{seen.session_id}").session
        assert group_keys(fork.messages[: len(said)]) == group_keys(said)
        assert [[c.id for c in m.calls] for m in fork.messages[: len(said)]] == [[c.id for c in m.calls] for m in said]
        assert fork.foreign == f"codex:{case.session_id}"
        assert [r.session_id for r in fork.references] == [made.to.session_id]
        back = convert(ctx, f"pi:{seen.session_id}", to="codex")
        again = open_session(ctx, f"codex:{case.session_id}").session
    assert back.to.session_id == case.session_id
    assert [m.text for m in again.messages[len(said) :]] == ["Another way, please.", "Another way."]
