"""Finding and opening sessions in an agent's home, and telling who holds one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claude_samples import CWD, ID, OTHER, Native, read_data, said
from clew.errors import NotFoundError, UnreadableSource
from clew.formats.claude import FORMAT
from clew.formats.claude.folder import folder_name, folder_of, is_helper_path, stream_path
from clew.formats.claude.locate import ClaudeLocate
from clew.formats.claude.resume import ClaudeResume
from clew.formats.protocol import Found, Home
from clew.platform.process import identify_self

LOCATE, RESUME = ClaudeLocate(), ClaudeResume()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def put(home: Home, path: str, data: bytes = b"") -> Path:
    found = home.root / ".claude" / path
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_bytes(data)
    return found


def session(home: Home, session_id: str = ID, folder: str = "-home-dev1-work-shop") -> Path:
    n = Native(session_id)
    n.user("one")
    return put(home, f"projects/{folder}/{session_id}.jsonl", n.data())


def ids(home: Home) -> list[tuple[str, str]]:
    return [(f.id, f.kind) for f in LOCATE.find(home)]


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/a/b.c_d", "-a-b-c-d"),
        ("/home/dev1/日🚀", "-home-dev1----"),
        ("C:\\work\\shop", "C--work-shop"),
        ("/", "-"),
        # As version 2.1.332 named the folder of such a path.
        (
            "/tmp/cl1/tmp9xdp9rf6/" + "p" * 150 + "/q.é🚀" + "r" * 100,
            "-tmp-cl1-tmp9xdp9rf6-" + "p" * 150 + "-q----" + "r" * 23 + "-fxnz6a",
        ),
    ],
)
def test_folders_are_named_as_the_agent_names_them(cwd: str, name: str) -> None:
    assert folder_name(cwd) == name


def test_paths_tell_their_folder_and_whether_they_are_helpers() -> None:
    assert stream_path(CWD, ID) == f"projects/-home-dev1-work-shop/{ID}.jsonl"
    assert folder_of(f"projects/-x/{ID}.jsonl") == "-x"
    assert folder_of(f"/elsewhere/{ID}.jsonl") == ""
    assert folder_of("projects/x.jsonl") == ""
    assert is_helper_path(f"projects/-x/{ID}/subagents/a.jsonl")
    assert is_helper_path("projects/-x/agent-a.jsonl")
    assert not is_helper_path(f"projects/-x/{ID}.jsonl")


def test_the_base_is_the_agents_own_variable_or_its_folder_at_home(tmp_path: Path) -> None:
    assert LOCATE.base(Home(tmp_path)) == tmp_path / ".claude"
    assert LOCATE.base(Home(tmp_path, {"CLAUDE_CONFIG_DIR": "/x"})) == Path("/x")
    assert LOCATE.places(Home(tmp_path)) == (tmp_path / ".claude" / "projects",)
    assert list(LOCATE.find(Home(tmp_path))) == []


def test_sessions_and_helpers_old_and_new_are_found(home: Home) -> None:
    session(home)
    session(home, OTHER, "-other")
    put(home, f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.jsonl", b"x")
    put(home, f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.meta.json")
    put(home, "projects/-other/agent-old.jsonl")
    put(home, "projects/-other/notes.txt")
    put(home, "projects/stray.jsonl")
    assert ids(home) == [(ID, "session"), ("agent-a1", "helper"), (OTHER, "session"), ("agent-old", "helper")]
    found = next(LOCATE.find(home))
    assert found.files == (found.path,)
    assert found.stamp[1] == found.path.stat().st_size


def test_one_id_in_two_folders_is_found_twice(home: Home) -> None:
    session(home, ID, "-a")
    session(home, ID, "-b")
    assert ids(home) == [(ID, "session")] * 2


def test_bad_entries_are_named_and_hide_nothing(home: Home) -> None:
    target = session(home)
    folder = target.parent
    (folder / "link.jsonl").symlink_to(target)
    (folder / "dangling.jsonl").symlink_to("/nowhere")
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    (folder.parent / "linked").symlink_to(folder)
    found = {f.path.name: f for f in LOCATE.find(home) if f.path.parent == folder}
    assert {name for name, f in found.items() if not f.problem} == {f"{ID}.jsonl"}
    assert "link" in found["dangling.jsonl"].problem
    behind = [f for f in LOCATE.find(home) if f.path.parent.name == "linked"]
    assert behind
    assert all(f.problem for f in behind)
    for name in ("link.jsonl", "pipe.jsonl", "folder.jsonl"):
        with pytest.raises(UnreadableSource):
            LOCATE.load(found[name], home)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(home: Home) -> None:
    folder = session(home).parent
    folder.chmod(0)
    try:
        (found,) = LOCATE.find(home)
        assert found.problem
    finally:
        folder.chmod(0o700)


def test_a_session_is_opened_with_everything_that_belongs_to_it(home: Home) -> None:
    path = session(home)
    put(home, f"projects/-home-dev1-work-shop/{ID}/tool-results/b1.txt", b"long")
    put(home, f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.jsonl", b"{}\n")
    put(home, f"file-history/{ID}/0123@v1", b"old")
    put(home, f"file-history/{OTHER}/0123@v1", b"not mine")
    link = path.parent / ID / "tool-results" / "link.txt"
    link.symlink_to("/etc/passwd")
    path.chmod(0o640)
    source = LOCATE.load(next(LOCATE.find(home)), home)
    (stream,) = source.streams
    assert (stream.path, stream.mode) == (f"projects/-home-dev1-work-shop/{ID}.jsonl", 0o640)
    assert source.hint_id == ID
    assert [(f.path, bytes(f.load())) for f in source.side] == [
        (f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.jsonl", b"{}\n"),
        (f"projects/-home-dev1-work-shop/{ID}/tool-results/b1.txt", b"long"),
        (f"file-history/{ID}/0123@v1", b"old"),
    ]
    assert said(FORMAT.read(source).messages) == [("user", "one")]


def test_a_helper_is_opened_with_its_meta_file(home: Home) -> None:
    session(home)
    n = Native()
    n.user("task", isSidechain=True)
    put(home, f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.jsonl", n.data())
    put(home, f"projects/-home-dev1-work-shop/{ID}/subagents/agent-a1.meta.json", b"{}")
    found = next(f for f in LOCATE.find(home) if f.kind == "helper")
    source = LOCATE.load(found, home)
    assert [f.path.rsplit("/", 1)[1] for f in source.side] == ["agent-a1.meta.json"]
    read = FORMAT.read(source)
    assert read.helper
    assert read.references[0].session_id == ID


def test_a_file_outside_the_home_and_a_large_one_are_opened(home: Home, tmp_path: Path) -> None:
    n = Native()
    n.user("x" * (9 << 20))
    path = tmp_path / f"{ID}.jsonl"
    path.write_bytes(n.data())
    source = LOCATE.load(Found("claude", ID, path), home)
    assert source.streams[0].path == path.as_posix()
    assert source.side == ()
    assert len(FORMAT.read(source).messages[0].text) == 9 << 20


def test_what_is_gone_is_not_found(home: Home) -> None:
    with pytest.raises(NotFoundError):
        LOCATE.load(Found("claude", ID, home.root / ".claude" / "projects" / "x" / "y.jsonl"), home)


def test_ghosts_of_the_old_index_are_named(home: Home) -> None:
    session(home)
    entries = [
        {"sessionId": ID},
        {"sessionId": OTHER, "projectPath": CWD},
        {"sessionId": "../../x"},
        {"sessionId": 5},
    ]
    put(home, "projects/-home-dev1-work-shop/sessions-index.json", json.dumps({"entries": entries}).encode())
    put(home, "projects/-b/sessions-index.json", b"?")
    (ghost,) = LOCATE.ghosts(home)
    assert (ghost.id, ghost.cwd_hint, ghost.problem) == (OTHER, CWD, "listed by the agent, file missing")
    assert ids(home) == [(ID, "session")]


def claims(*rows: object, name: str = "x.jsonl") -> bool:
    return LOCATE.claims(Path(name), b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def test_files_of_unknown_origin_are_told_by_their_records() -> None:
    n = Native()
    n.user("one")
    assert LOCATE.claims(Path("x.jsonl"), n.data())
    assert LOCATE.claims(Path("x.jsonl"), b'{"broken\n' + n.data() + b'{"torn')
    assert claims({"type": "summary", "summary": "x", "leafUuid": "y"})
    assert claims({"type": "queue-operation", "sessionId": "x"})
    assert claims({"type": "user", "uuid": "x", "parentUuid": None, "message": {"role": "user", "content": "x"}})
    assert not claims({"type": "session_meta", "payload": {"id": "x"}})
    assert not claims({"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}})
    parts = {"role": "user", "parts": [{"text": "x"}]}
    assert not claims({"type": "user", "uuid": "x", "parentUuid": None, "message": parts})
    assert not claims({"type": "message", "message": {"role": "user", "content": "x"}})
    assert not LOCATE.claims(Path("x.jsonl"), b"")
    assert not LOCATE.claims(Path("x.db"), n.data())


def test_settings(home: Home) -> None:
    assert LOCATE.settings(home).provider == "anthropic"
    put(home, "settings.json", b'{"model":"opus","env":{"CLAUDE_CODE_USE_BEDROCK":"1"}}')
    found = LOCATE.settings(home)
    assert (found.model, found.provider) == ("opus", "bedrock")
    put(home, "settings.json", b'{"model":7,"env":[]}')
    assert LOCATE.settings(Home(home.root, {"CLAUDE_CODE_USE_VERTEX": "true", "ANTHROPIC_MODEL": "m"})).model == "m"
    put(home, "settings.json", b"?")
    assert LOCATE.settings(home).model == ""


def test_command_lines() -> None:
    assert RESUME.argv(ID) == ("claude", "--resume", ID)
    assert RESUME.argv(ID, model="m", extra=("-p", "x")) == ("claude", "--resume", ID, "--model", "m", "-p", "x")
    assert RESUME.fork_argv(ID) == ("claude", "--resume", ID, "--fork-session")


def register(home: Home, pid: int, **more: object) -> None:
    put(home, f"sessions/{pid}.json", json.dumps({"pid": pid, "sessionId": ID, "status": "busy"} | more).encode())


@pytest.fixture
def ended() -> int:
    """The pid of a process that has ended and was waited for."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(30)
    return child.pid


def test_only_a_live_process_owns_a_session(home: Home, ended: int) -> None:
    me = identify_self()
    found = Found("claude", ID, home.root)
    assert RESUME.owner(found, home) is None
    register(home, ended, procStart="1")
    put(home, "sessions/1.json", b"?")
    put(home, "sessions/2.json", b'{"pid":"x","sessionId":5}')
    assert RESUME.owner(found, home) is None
    register(home, me.pid, procStart=str(me.start_ticks))
    owner = RESUME.owner(found, home)
    assert owner is not None
    assert (owner.pid, owner.start_ticks) == (me.pid, me.start_ticks)
    assert "busy" in owner.detail
    assert RESUME.owner(Found("claude", OTHER, home.root), home) is None
    assert list(RESUME.owners(home)) == [ID]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the start is written in another way there")
def test_a_pid_that_was_given_again_owns_nothing(home: Home) -> None:
    me = identify_self()
    register(home, me.pid, procStart=str(me.start_ticks - 1))
    assert RESUME.owners(home) == {}


def test_the_format_says_what_it_is() -> None:
    assert (FORMAT.name, FORMAT.title, FORMAT.resume.program) == ("claude", "Claude Code", "claude")
    assert FORMAT.traits.holds_images
    assert read_data(b"").agent == FORMAT.name
