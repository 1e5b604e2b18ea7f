"""Converting, continuing, forking, restoring and keeping: the verbs on a temporary home, without any agent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.errors import AmbiguousError, FormatError, NotFoundError, Refused, UsageError
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import Kept, keep
from clew.verbs.log import log
from clew.verbs.ls import ls
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from clew.verbs.show import show
from clew_corpus import Case, own_case, own_cases

Make = Callable[..., Context]


@pytest.fixture
def case() -> Case:
    return own_case("claude", "tools")


@pytest.fixture
def home(case: Case, tmp_path: Path) -> Path:
    return case.copy_home(tmp_path / "home")


@pytest.fixture
def make(home: Path, tmp_path: Path) -> Make:
    def context(minute: int = 0, root: Path | None = None, data: Path | None = None) -> Context:
        return Context(
            Home(root or home),
            data or tmp_path / "data",
            cwd=tmp_path,
            clock=FixedClock(datetime(2026, 12, 1, 9, minute, tzinfo=UTC)),
        )

    return context


def session_file(home: Path, agent: str) -> Path:
    pattern = {"claude": ".claude/projects/*/*.jsonl", "codex": ".codex/sessions/*/*/*/*.jsonl"}[agent]
    (path,) = home.glob(pattern)
    return path


def snapshot(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def say_in_codex(path: Path, text: str, answer: str) -> None:
    """Appends a turn as Codex itself would (legacy history mode)."""
    with path.open("a", encoding="utf-8") as file:
        for role, kind, said in (("user", "input_text", text), ("assistant", "output_text", answer)):
            payload = {"type": "message", "role": role, "content": [{"type": kind, "text": said}]}
            line = {"timestamp": "2026-12-01T09:30:00.000Z", "type": "response_item", "payload": payload}
            file.write(json.dumps(line) + "\n")


def test_a_dry_run_gives_the_same_answer_and_writes_nothing(make: Make, home: Path, case: Case) -> None:
    before = snapshot(home)
    with make() as ctx:
        told = convert(ctx, case.session_id or "", to="codex", dry_run=True)
    assert snapshot(home) == before
    with make() as ctx:
        done = convert(ctx, case.session_id or "", to="codex")
    assert not told.written
    assert done.written
    assert (told.to, told.report, told.thread, told.resume) == (done.to, done.report, done.thread, done.resume)


def test_converting_again_continues_the_session_made_before(make: Make, home: Path, case: Case) -> None:
    with make() as ctx:
        first = convert(ctx, case.session_id or "", to="codex")
        again = convert(ctx, case.session_id or "", to="codex")
    assert again.to.session_id == first.to.session_id
    assert not again.written
    assert again.report.mode == "whole"


def test_the_thread_counts_messages_as_the_report_does(make: Make, case: Case) -> None:
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex")
        (entry,) = [one for one in log(ctx, case.session_id or "").entries if one.what == "translated"]
    assert made.report.results
    assert (entry.restored, entry.rendered) == (0, made.report.rendered_messages) == (0, made.report.messages)
    assert entry.losses == made.report.losses
    assert {loss.what for loss in entry.losses} == {"reasoning blocks", "error flags"}


def test_a_turn_said_elsewhere_is_spliced_behind_the_old_bytes(make: Make, home: Path, case: Case) -> None:
    original = session_file(home, "claude").read_bytes()
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex")
    say_in_codex(session_file(home, "codex"), "One more?", "One more.")
    with make(1) as ctx:
        back = convert(ctx, f"codex:{made.to.session_id}", to="claude")
        messages = open_session(ctx, case.session_id or "").session.messages
    data = session_file(home, "claude").read_bytes()
    assert data.startswith(original)
    assert back.report.mode == "prefix"
    assert back.report.rendered_messages == 2
    assert [m.text for m in messages[-2:]] == ["One more?", "One more."]


def test_both_sides_went_on_and_nothing_is_written(make: Make, home: Path, case: Case) -> None:
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex")
    say_in_codex(session_file(home, "codex"), "Here?", "Here.")
    claude = session_file(home, "claude")
    last = json.loads(claude.read_text().splitlines()[-2])
    user = {
        "parentUuid": last.get("leafUuid") or last.get("uuid"),
        "uuid": "5b2f7e0e-0000-4000-8000-000000000001",
        "type": "user",
        "sessionId": case.session_id,
        "message": {"role": "user", "content": "There?"},
        "timestamp": "2026-12-01T09:31:00.000Z",
    }
    with claude.open("a") as file:
        file.write(json.dumps(user, separators=(",", ":")) + "\n")
    before = snapshot(home)
    with make(1) as ctx, pytest.raises(Refused) as caught:
        convert(ctx, f"codex:{made.to.session_id}", to="claude")
    assert caught.value.code == "target_diverged"
    assert "--new" in caught.value.hint
    assert snapshot(home) == before
    with make(2) as ctx:
        fork = convert(ctx, f"codex:{made.to.session_id}", to="claude", new=True)
        forked = open_session(ctx, f"claude:{fork.to.session_id}").session
    assert fork.to.session_id != case.session_id
    assert forked.messages[-1].text == "Here."
    assert snapshot(home).items() >= before.items()


def test_a_deleted_session_comes_back_whole(make: Make, home: Path, case: Case) -> None:
    path = session_file(home, "claude")
    original = path.read_bytes()
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex")
    path.unlink()
    with make(1) as ctx:
        assert [row.state for row in ls(ctx, every_folder=True, agent="claude")] == ["gone"]
        back = convert(ctx, f"codex:{made.to.session_id}", to="claude")
    assert back.report.mode == "whole"
    assert path.read_bytes() == original


def test_a_lost_data_folder_still_knows_its_own(make: Make, home: Path, case: Case, tmp_path: Path) -> None:
    original = session_file(home, "claude").read_bytes()
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex")
    say_in_codex(session_file(home, "codex"), "Still?", "Still.")
    with make(1, data=tmp_path / "other-data") as ctx:
        back = convert(ctx, f"codex:{made.to.session_id}", to="claude")
    assert back.to.session_id == case.session_id
    assert session_file(home, "claude").read_bytes().startswith(original)


def test_out_stands_for_the_root(make: Make, home: Path, case: Case, tmp_path: Path) -> None:
    before = snapshot(home)
    with make() as ctx:
        made = convert(ctx, case.session_id or "", to="codex", out=tmp_path / "elsewhere")
    assert Path(made.to.path).is_relative_to(tmp_path / "elsewhere" / ".codex")
    assert snapshot(home) == before


def test_strict_writes_nothing_where_something_stays_behind(make: Make, home: Path, case: Case) -> None:
    before = snapshot(home)
    with make() as ctx, pytest.raises(FormatError) as caught:
        convert(ctx, case.session_id or "", to="codex", strict=True)
    assert caught.value.exit_code == 6
    assert snapshot(home) == before


def test_to_the_same_agent_needs_new(make: Make, home: Path, case: Case) -> None:
    with make() as ctx, pytest.raises(UsageError):
        convert(ctx, case.session_id or "", to="claude")


def test_keep_then_restore_after_deletion(make: Make, home: Path, case: Case) -> None:
    path = session_file(home, "claude")
    original, mode = path.read_bytes(), path.stat().st_mode
    with make() as ctx:
        (kept,) = keep(ctx, [])
        (again,) = keep(ctx, [])
    assert isinstance(kept, Kept)
    assert isinstance(again, Kept)
    assert (kept.new, again.new, again.capture) == (True, False, kept.capture)
    path.unlink()
    with make(1) as ctx:
        restored = restore(ctx, case.session_id or "")
        twice = restore(ctx, case.session_id or "")
    assert path.read_bytes() == original
    assert path.stat().st_mode == mode
    assert restored.paths == (str(path),)
    assert twice.unchanged == (str(path),)


def test_restore_never_goes_over_other_bytes(make: Make, home: Path, case: Case, tmp_path: Path) -> None:
    path = session_file(home, "claude")
    original = path.read_bytes()
    with make() as ctx:
        list(keep(ctx, []))
    path.write_bytes(original + b"{}\n")
    with make(1) as ctx:
        with pytest.raises(Refused) as caught:
            restore(ctx, case.session_id or "")
        assert path.read_bytes() == original + b"{}\n"
        elsewhere = restore(ctx, case.session_id or "", to=tmp_path / "there")
    assert caught.value.code == "target_diverged"
    assert Path(elsewhere.paths[0]).read_bytes() == original


FILES = [case for case in own_cases() if get_format(case.agent).place_rows is None]
"""Sessions that are files of their own; rows in a shared database are compared by their exports elsewhere."""


@pytest.mark.parametrize("case", FILES, ids=str)
def test_every_recorded_session_is_kept_and_restored(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    before = snapshot(home)
    clock = FixedClock(datetime(2026, 12, 1, 9, 0, tzinfo=UTC))
    with Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=clock) as ctx:
        kept = [k for k in keep(ctx, []) if isinstance(k, Kept)]
        assert snapshot(home) == before, "keeping changes nothing"
        back = Home(tmp_path / "back").root
        for one in kept:
            restore(ctx, f"{one.agent}:{one.session_id}", to=back)
    restored = snapshot(back) if back.exists() else {}
    if case.agent in ("claude", "codex"):
        sessions = {k: v for k, v in before.items() if k.endswith((".jsonl", ".zst")) and "/agent-" not in k}
        assert {k: restored.get(k) for k in sessions} == sessions
    assert restored.items() <= before.items()


def test_references(make: Make, home: Path, case: Case, tmp_path: Path) -> None:
    session_id = case.session_id or ""
    with make() as ctx:
        convert(ctx, session_id, to="codex")
        assert open_session(ctx, session_id[:6]).session.id == session_id
        assert open_session(ctx, f"claude:{session_id[:4]}").session.id == session_id
        assert open_session(ctx, str(session_file(home, "claude"))).session.id == session_id
        thread = convert(ctx, session_id, to="codex").thread
        assert open_session(ctx, thread).session.messages
        with pytest.raises(NotFoundError):
            open_session(ctx, "ffffffff")
        with pytest.raises(UsageError):
            open_session(ctx, "nosuchagent:@")
        with pytest.raises(NotFoundError):
            open_session(ctx, "@")


def test_one_id_in_two_folders_is_ambiguous(make: Make, home: Path, case: Case) -> None:
    path = session_file(home, "claude")
    other = path.parent.parent / "-elsewhere" / path.name
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    with make() as ctx:
        with pytest.raises(AmbiguousError) as caught:
            open_session(ctx, case.session_id or "")
        assert str(path) in str(caught.value)
        assert str(other) in str(caught.value)
        assert open_session(ctx, str(other)).session.id == case.session_id


def test_an_agent_that_wants_a_model_named_is_told_its_default(make: Make, home: Path, case: Case) -> None:
    with make() as ctx:
        plain = convert(ctx, case.session_id or "", to="kimi", dry_run=True)
    (home / ".kimi-code").mkdir()
    (home / ".kimi-code" / "config.toml").write_text('default_model = "thread"\n')
    with make() as ctx:
        told = convert(ctx, case.session_id or "", to="kimi", dry_run=True)
        asked = convert(ctx, case.session_id or "", to="kimi", model="other", dry_run=True)
    assert plain.resume.argv == ("kimi", "-S", plain.to.session_id)
    assert told.resume.argv == ("kimi", "-S", told.to.session_id, "-m", "thread")
    assert asked.resume.argv[-2:] == ("-m", "other")


def test_resume_says_what_is_no_longer_so(make: Make, case: Case, tmp_path: Path) -> None:
    with make() as ctx:
        with pytest.raises(Refused) as caught:
            resume(ctx, case.session_id or "")
        assert "--accept cwd" in caught.value.hint
        plan = resume(ctx, case.session_id or "", accept=("cwd",))
        assert plan.needs[0].what == "cwd"
        assert plan.argv[:3] == ("claude", "--resume", case.session_id)
        there = resume(ctx, case.session_id or "", in_agent="codex", cwd=str(tmp_path))
        assert there.argv[:2] == ("codex", "resume")
        assert there.cwd == str(tmp_path)


def test_an_unreadable_file_hides_no_other(make: Make, home: Path, case: Case) -> None:
    folder = session_file(home, "claude").parent
    (folder / "11111111-1111-4111-8111-111111111111.jsonl").mkdir()
    (folder / "22222222-2222-4222-8222-222222222222.jsonl").symlink_to("/etc/hostname")
    (folder / "33333333-3333-4333-8333-333333333333.jsonl").write_bytes(b"\x00\xff junk")
    (folder / "44444444-4444-4444-8444-444444444444.jsonl").write_bytes(b"")
    with make() as ctx:
        listed = {row.id[:4]: row.state for row in ls(ctx, every_folder=True, hidden=True, agent="claude")}
    assert listed[(case.session_id or "")[:4]] == "idle"
    assert listed["1111"] == "unreadable"
    assert listed["2222"] == "unreadable"
    assert set(listed) >= {"3333", "4444"}


def test_damaged_records_hide_no_session(make: Make, home: Path, case: Case, tmp_path: Path) -> None:
    with make() as ctx:
        convert(ctx, case.session_id or "", to="codex")
    for name in ("records.db", "residue.db"):
        (tmp_path / "data" / name).write_bytes(b"this is no database" * 400)
    with make(1) as ctx:
        rows = list(ls(ctx, every_folder=True))
        assert {row.agent for row in rows} == {"claude", "codex"}
        assert ctx.notes, "the damage is told"
        assert show(ctx, case.session_id or "").messages


def test_junk_is_damaged_not_empty(make: Make, home: Path, case: Case) -> None:
    path = session_file(home, "claude").with_name("55555555-5555-4555-8555-555555555555.jsonl")
    path.write_bytes(bytes(range(256)) * 200)
    with make() as ctx:
        states = {row.id[:4]: row.state for row in ls(ctx, every_folder=True, hidden=True, agent="claude")}
    assert states["5555"] == "damaged"


def test_a_session_named_otherwise_inside_is_listed_once(make: Make, home: Path, case: Case) -> None:
    with make() as ctx:
        convert(ctx, case.session_id or "", to="codex")
    path = session_file(home, "codex")
    path.rename(path.with_name(path.name[:-41] + "99999999-9999-4999-8999-999999999999.jsonl"))
    with make(1) as ctx:
        list(keep(ctx, []))
        assert len(list(ls(ctx, every_folder=True, hidden=True, agent="codex"))) == 1


def test_a_capture_that_holds_more_than_the_last_is_told(make: Make, home: Path, case: Case) -> None:
    path = session_file(home, "claude")
    data = path.read_bytes()
    with make() as ctx:
        list(keep(ctx, []))
        assert restore(ctx, case.session_id or "").warnings == ()
        path.write_bytes(b"".join(data.splitlines(keepends=True)[:6]))
        list(keep(ctx, []))
        path.unlink()
        (warning,) = restore(ctx, case.session_id or "").warnings
        assert "`--capture 1`" in warning
        path.unlink()
        assert restore(ctx, case.session_id or "", capture=1).warnings == ()
    assert path.read_bytes() == data


def test_an_empty_session_of_the_same_id_is_no_place_to_come_home_to(make: Make, tmp_path: Path) -> None:
    case = own_case("gemini", "tools")
    root = case.copy_home(tmp_path / "gemini")
    (path,) = root.glob(".gemini/tmp/*/chats/session-*.jsonl")
    data = path.read_bytes()
    minute = path.name.split("-")[4]
    stub = path.with_name(path.name.replace(f"-{minute}-", f"-{int(minute) % 59 + 1:02}-", 1))
    with make(root=root) as ctx:
        made = convert(ctx, f"gemini:{case.session_id}", to="codex")
        path.unlink()
        stub.write_bytes(data.splitlines(keepends=True)[0])
        back = convert(ctx, f"codex:{made.to.session_id}", to="gemini")
    assert path.read_bytes() == data
    assert stub.read_bytes() == data.splitlines(keepends=True)[0]
    assert (back.report.rendered_messages, back.to.session_id) == (0, case.session_id)
