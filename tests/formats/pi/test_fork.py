"""A copy that pi makes of what clew wrote stays in the thread of where it came from."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from clew.formats.pi.folder import file_name
from clew.formats.protocol import Home
from clew.laws.stored import make_id
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew_corpus import own_case


def test_a_copy_under_another_id_comes_home_into_the_same_thread(tmp_path: Path) -> None:
    case = own_case("codex", "simple")
    home = case.copy_home(tmp_path / "home")
    clock = FixedClock(datetime(2026, 12, 1, 12, 0, tzinfo=UTC))
    with Context(Home(home), home / "clew-data", cwd=home, clock=clock) as ctx:
        made = convert(ctx, f"codex:{case.session_id}", to="pi", cwd=str(tmp_path))
    path = Path(made.to.path)
    other = make_id("fork")
    copied = path.read_bytes().replace(made.to.session_id.encode(), other.encode(), 1)
    leaf = copied.splitlines()[-1].split(b'"id":"')[1].split(b'"')[0].decode()
    entry = {"type": "message", "id": "f0", "parentId": leaf, "message": {"role": "user", "content": "More."}}
    path.with_name(file_name(other, 0)).write_bytes(copied + json.dumps(entry).encode() + b"\n")
    clock.advance(60)
    with Context(Home(home), home / "clew-data", cwd=home, clock=clock) as ctx:
        back = convert(ctx, f"pi:{other}", to="codex")
    assert back.to.session_id == case.session_id
    assert back.thread == made.thread
    assert (back.report.mode, back.report.rendered_messages) == ("prefix", 1)
