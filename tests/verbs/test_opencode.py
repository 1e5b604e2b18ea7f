"""Sessions that are rows, through the verbs: listed, kept, carried, gone on with, restored; nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.errors import AmbiguousError, ClewError, NotFoundError, Refused
from clew.formats.opencode import FORMAT
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.platform.faults import InjectedFault, installed
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.ls import ls
from clew.verbs.place import place_all
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from clew.verbs.show import show
from clew_corpus import Case, fault_cases, shared_cases
from opencode_samples import ID, OTHER, database, keys, place, written_rows

TALK = (
    make_user("Which knots?", time_ms=1_800_000_000_000),
    make_assistant("I look.", make_call("c1", "bash", '{"command":"ls"}'), time_ms=1_800_000_001_000),
    make_result("c1", "bowline\n"),
    make_assistant("One knot.", time_ms=1_800_000_002_000),
)


def open_context(root: Path, minute: int = 0) -> Context:
    return Context(
        Home(root),
        root / "clew-data",
        cwd=root,
        clock=FixedClock(datetime(2031, 1, 1, 12, minute, tzinfo=UTC)),
    )


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    place(Home(tmp_path), written_rows(TALK))
    place(Home(tmp_path), written_rows((make_user("Another talk."),), id_=OTHER), id_=OTHER)
    with open_context(tmp_path) as made:
        yield made


def rows_of(root: Path, id_: str = ID) -> bytes | None:
    assert FORMAT.present_rows is not None
    found = FORMAT.present_rows(Home(root), f"opencode.db#{id_}")
    return None if found is None else bytes(found)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def sql(root: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database(Home(root)))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_every_session_of_one_database_is_listed_and_remembered(ctx: Context, tmp_path: Path) -> None:
    before = digests(database(Home(tmp_path)).parent)
    first = list(ls(ctx, every_folder=True))
    assert {(row.id, row.title, row.messages) for row in first} == {
        (ID, "Which knots?", 3),
        (OTHER, "Another talk.", 1),
    }
    assert list(ls(ctx, every_folder=True)) == first
    sql(tmp_path, f"UPDATE session SET title = 'Renamed', time_updated = time_updated + 1 WHERE id = '{OTHER}'")
    assert {row.title for row in ls(ctx, every_folder=True)} == {"Which knots?", "Renamed"}
    assert list(before) == list(digests(database(Home(tmp_path)).parent))


def test_a_session_is_named_by_id_or_by_the_database_and_its_id(ctx: Context, tmp_path: Path) -> None:
    path = database(Home(tmp_path))
    assert show(ctx, ID).session_id == ID
    assert show(ctx, f"{path}#{OTHER}").session_id == OTHER
    with pytest.raises(AmbiguousError) as refused:
        show(ctx, str(path))
    assert refused.value.concerns["candidates"] == sorted([ID, OTHER])
    with pytest.raises(NotFoundError):
        show(ctx, f"{path}#ses_nobody")
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    assert show(ctx, f"{copy}#{OTHER}").session_id == OTHER


def test_there_and_back_changes_nothing(ctx: Context, tmp_path: Path) -> None:
    before = digests(database(Home(tmp_path)).parent)
    made = convert(ctx, ID, to="codex")
    back = convert(ctx, f"codex:{made.to.session_id}", to="opencode")
    assert (back.to.session_id, back.report.mode, back.written) == (ID, "whole", False)
    assert digests(database(Home(tmp_path)).parent) == before


def test_what_came_later_is_put_behind_the_rows_that_are_there(ctx: Context, tmp_path: Path) -> None:
    rows, other = rows_of(tmp_path), rows_of(tmp_path, OTHER)
    assert rows is not None
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)
    back = convert(ctx, f"codex:{made.to.session_id}", to="opencode")
    assert (back.to.session_id, back.report.mode, back.report.rendered_messages) == (ID, "prefix", 1)
    assert back.to.paths == (str(database(Home(tmp_path))),)
    after = rows_of(tmp_path)
    assert after is not None
    assert after.startswith(rows)
    assert open_session(ctx, ID).session.messages[-1].text == "One more turn."
    assert rows_of(tmp_path, OTHER) == other


def go_on(path: str) -> None:
    """Adds a turn to a Codex thread, as its user would."""
    content = [{"type": "input_text", "text": "One more turn."}]
    item = {"type": "message", "role": "user", "content": content}
    line = {"timestamp": "2030-06-01T00:00:00.000Z", "type": "response_item", "payload": item}
    with Path(path).open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")


def test_when_both_went_on_nothing_is_written(ctx: Context, tmp_path: Path) -> None:
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)
    sql(
        tmp_path,
        "INSERT INTO message SELECT 'msg_zz', session_id, 1900000000000, 1, "
        f"""'{{"role":"user","time":{{"created":1900000000000}}}}' FROM message WHERE session_id = '{ID}' LIMIT 1""",
        f"""INSERT INTO part VALUES ('prt_zz', 'msg_zz', '{ID}', 1, 1, '{{"type":"text","text":"Here too."}}')""",
    )
    before = rows_of(tmp_path)
    with pytest.raises(Refused) as refused:
        convert(ctx, f"codex:{made.to.session_id}", to="opencode")
    assert refused.value.code == "target_diverged"
    assert rows_of(tmp_path) == before
    fresh = convert(ctx, f"codex:{made.to.session_id}", to="opencode", new=True)
    assert fresh.to.session_id not in (ID, OTHER)
    assert rows_of(tmp_path) == before


def test_a_change_at_the_last_moment_is_seen(ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)

    def changed(*given: Any) -> None:
        sql(tmp_path, f"UPDATE part SET time_updated = time_updated + 1 WHERE session_id = '{ID}'")
        place_all(*given)

    monkeypatch.setattr("clew.verbs.delivery.place_all", changed)
    with pytest.raises(Refused) as refused:
        convert(ctx, f"codex:{made.to.session_id}", to="opencode")
    assert refused.value.code == "target_diverged"
    assert open_session(ctx, ID).session.messages[-1].text == "One knot."


def test_a_fault_in_the_middle_leaves_the_rows_and_a_second_try_works(ctx: Context, tmp_path: Path) -> None:
    made = convert(ctx, ID, to="codex")
    go_on(made.to.path)
    before = rows_of(tmp_path)
    with installed("rows.before-commit=raise"), pytest.raises(InjectedFault):
        convert(ctx, f"codex:{made.to.session_id}", to="opencode")
    assert rows_of(tmp_path) == before
    assert convert(ctx, f"codex:{made.to.session_id}", to="opencode").written


def test_rows_that_the_agent_deleted_come_back_equal_in_every_column(ctx: Context, tmp_path: Path) -> None:
    sql(tmp_path, f"INSERT INTO todo VALUES ('{ID}', 'wind it up', 'pending', 'low', 0, 1, 1)")
    rows = rows_of(tmp_path)
    list(keep(ctx, [ID]))
    unchanged = restore(ctx, ID)
    assert (unchanged.paths, unchanged.unchanged) == ((), (str(database(Home(tmp_path))),))
    for table, column in (("part", "session_id"), ("message", "session_id"), ("todo", "session_id"), ("session", "id")):
        sql(tmp_path, f"DELETE FROM {table} WHERE {column} = '{ID}'")
    assert [row.state for row in ls(ctx, every_folder=True) if row.id == ID] == ["gone"]
    assert restore(ctx, ID).paths == (str(database(Home(tmp_path))),)
    assert rows_of(tmp_path) == rows
    elsewhere = tmp_path / "elsewhere"
    restore(ctx, ID, to=elsewhere)
    assert rows_of(elsewhere) == rows


def test_rows_that_went_on_are_not_restored_over(ctx: Context, tmp_path: Path) -> None:
    list(keep(ctx, [ID]))
    sql(tmp_path, f"UPDATE session SET title = 'went on' WHERE id = '{ID}'")
    before = rows_of(tmp_path)
    with pytest.raises(Refused) as refused:
        restore(ctx, ID)
    assert refused.value.code == "target_diverged"
    assert rows_of(tmp_path) == before


def test_a_second_session_of_the_same_agent_has_ids_of_its_own(ctx: Context, tmp_path: Path) -> None:
    before = rows_of(tmp_path)
    made = convert(ctx, ID, to="opencode", new=True)
    assert made.report.mode == "rebased"
    assert made.to.session_id.startswith("ses_")
    assert rows_of(tmp_path) == before
    assert keys(open_session(ctx, made.to.session_id).session.messages) == keys(TALK)


def test_writing_elsewhere_makes_a_database_there(ctx: Context, tmp_path: Path) -> None:
    out = tmp_path / "out"
    thread = convert(ctx, ID, to="codex")
    sql(tmp_path, "DELETE FROM part", "DELETE FROM message", "DELETE FROM session")
    planned = convert(ctx, f"codex:{thread.to.session_id}", to="opencode", out=out, dry_run=True)
    assert not out.exists()
    made = convert(ctx, f"codex:{thread.to.session_id}", to="opencode", out=out)
    assert planned.to == made.to
    assert made.to.path == str(out / ".local/share/opencode/opencode.db")
    assert rows_of(out, made.to.session_id) is not None
    assert rows_of(tmp_path, made.to.session_id) is None


def test_a_plan_names_the_command_and_the_folder_that_is_missing(ctx: Context) -> None:
    plan = resume(ctx, ID, dry_run=True)
    assert plan.argv == ("opencode", "--session", ID)
    assert [(need.what, need.recorded, need.now) for need in plan.needs] == [("cwd", "/home/dev1/proj/loom", "missing")]


def test_a_session_of_the_older_layout_is_shown_and_kept_but_not_gone_on_with(tmp_path: Path) -> None:
    storage = tmp_path / ".local/share/opencode/storage"
    files = {
        f"session/global/{ID}.json": f'{{"id":"{ID}","directory":"{tmp_path}","title":"Old"}}',
        f"message/{ID}/msg_1.json": '{"id":"msg_1","role":"user","time":{"created":1}}',
        "part/msg_1/prt_1.json": '{"id":"prt_1","messageID":"msg_1","type":"text","text":"Which knots?"}',
    }
    for name, text in files.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(text)
    with open_context(tmp_path) as ctx:
        assert [group.text for group in show(ctx, ID).messages] == ["Which knots?"]
        made = convert(ctx, ID, to="codex")
        go_on(made.to.path)
        with pytest.raises(ClewError) as refused:
            convert(ctx, f"codex:{made.to.session_id}", to="opencode")
        assert refused.value.code == "older_layout"
        for name in files:
            (storage / name).unlink()
        restore(ctx, ID)
        assert {name: (storage / name).read_text() for name in files} == files


# --- sessions of the real agent --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in shared_cases("opencode") if c.expected], ids=str)
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    from agents.lab.judge import as_groups, judge_messages

    home = Home(case.home)
    before = digests(database(home).parent)
    found = next(found for found in FORMAT.locate.find(home) if found.id == case.session_id)
    session = FORMAT.read(FORMAT.locate.load(found, home))
    assert not session.damage
    assert session.cwd == case.cwd
    # Beside a prompt the agent puts the text of an attached file: a message of its own, which nobody typed.
    messages = [m for m in session.messages if m.origin != "agent" or m.role == "tool"]
    said = [
        {
            "role": m.role,
            "text": m.text,
            "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in m.calls],
            "tool_results": [{"call_id": m.call_id, "text": m.text, "is_error": m.is_error}]
            if m.role == "tool"
            else [],
            "images": [],
        }
        for m in messages
    ]
    wanted = [
        {name: value for name, value in group.items() if name != "images"} for group in as_groups(case.expected or ())
    ]
    assert judge_messages(said, wanted) == []
    assert digests(database(home).parent) == before


@pytest.mark.parametrize("case", [c for c in shared_cases("opencode") if c.expected], ids=str)
def test_a_recorded_session_is_carried_and_given_back(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    before = digests(database(Home(home)).parent)
    with open_context(home) as ctx:
        rows = rows_of(home, str(case.session_id))
        made = convert(ctx, f"opencode:{case.session_id}", to="codex")
        back = convert(ctx, f"codex:{made.to.session_id}", to="opencode")
        assert (back.to.session_id, back.report.mode, back.written) == (case.session_id, "whole", False)
        assert digests(database(Home(home)).parent) == before
        restore(ctx, f"opencode:{case.session_id}", to=tmp_path / "elsewhere")
        assert rows_of(tmp_path / "elsewhere", str(case.session_id)) == rows


@pytest.mark.parametrize("case", fault_cases("opencode"), ids=str)
def test_a_fault_is_read_as_it_should_be(case: Case, tmp_path: Path) -> None:
    before = digests(database(Home(case.home)).parent)
    with Context(
        Home(case.home), tmp_path / "data", cwd=tmp_path, clock=FixedClock(datetime(2031, 1, 1, tzinfo=UTC))
    ) as ctx:
        listed = {row.id: row for row in ls(ctx, every_folder=True, hidden=True)}
        expected = case.data["expected"]
        sessions = expected.get("sessions") or {expected["session"]: expected["messages"]}
        for id_, messages in sessions.items():
            shown = show(ctx, id_)
            assert [(g.role, g.text) for g in shown.messages] == [(m["role"], m["text"]) for m in messages]
        for folder, ids in expected.get("sessions_by_workspace", {}).items():
            assert {row.id for row in listed.values() if row.cwd == folder and not row.helper} == set(ids)
        for child in expected.get("children", ()):
            assert (listed[child["id"]].helper, listed[child["id"]].parent) == (True, child["parent"])
        if "children" in expected:
            assert [row.state for row in listed.values()].count("archived") == 1
            plan = resume(ctx, next(iter(sessions)), dry_run=True)
            assert next((need.what, need.recorded) for need in plan.needs) == ("cwd", "/home/dev1/work/old-shop")
    assert digests(database(Home(case.home)).parent) == before


def test_rows_left_without_their_session_are_named_with_what_to_do(ctx: Context, tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    list(keep(ctx, [ID]))
    sql(tmp_path, f"DELETE FROM session WHERE id = '{ID}'")
    with pytest.raises(Refused) as caught:
        restore(ctx, ID)
    path = database(Home(tmp_path))
    assert caught.value.message.startswith(f"{path}: a row of the table 'message' is in the way (id ")
    assert f"left of session {ID}, which is gone" in caught.value.message
    assert caught.value.hint.startswith(f"With the agent ended, take the rows of session {ID} out of message")
    sql(tmp_path, f"DELETE FROM message WHERE session_id = '{ID}'", f"DELETE FROM part WHERE session_id = '{ID}'")
    restore(ctx, ID)
    assert rows_of(tmp_path) == rows
