"""Real files from public repositories: read without an exception, kept and given back byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.formats.protocol import Home
from clew.formats.registry import all_formats
from clew.platform.clock import FixedClock
from clew.verbs.capture import captured_source
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import Kept, keep
from clew.verbs.refer import open_session
from clew_corpus import Case, public_sessions


def _claimed(case: Case) -> str:
    head = case.paths[0].read_bytes()[: 1 << 16]
    return next((form.name for form in all_formats() if form.locate.claims(case.paths[0], head)), "")


@pytest.mark.parametrize("case", public_sessions(), ids=lambda c: c.name[:60])
def test_a_public_session_is_read_kept_carried_and_given_back(case: Case, tmp_path: Path) -> None:
    agent = _claimed(case)
    if not agent:
        assert case.agent not in ("claude-code", "claude", "codex"), "a format of ours claims it"
        pytest.skip("no format here claims this file")
    path = tmp_path / case.paths[0].name
    path.write_bytes(case.paths[0].read_bytes())
    clock = FixedClock(datetime(2026, 12, 1, 9, 0, tzinfo=UTC))
    with Context(Home(tmp_path / "home"), tmp_path / "data", cwd=tmp_path, clock=clock) as ctx:
        opened = open_session(ctx, str(path))
        assert opened.format.name == agent
        (kept,) = keep(ctx, [str(path)])
        assert isinstance(kept, Kept)
        source = captured_source(ctx, opened.format, opened.session.id)
        assert source is not None
        assert b"".join(bytes(s.data) for s in source.streams) == path.read_bytes()
        if opened.session.messages:
            to = "codex" if agent != "codex" else "claude"
            made = convert(ctx, str(path), to=to, out=tmp_path / "out")
            assert made.report.messages
