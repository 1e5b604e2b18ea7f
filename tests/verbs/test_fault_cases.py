"""The collection of faults that people met, through the verbs: what they say stands in each case's own description.

Skipped where the collection does not stand beside the checkout (see tests/clew_corpus.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.lab.judge import to_groups
from clew.errors import AmbiguousError, ClewError, Refused
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.converted import Converted
from clew.verbs.keep import Kept, keep
from clew.verbs.ls import Listed, ls
from clew.verbs.refer import open_listed, open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from clew.verbs.show import show_groups
from clew_corpus import Case, fault_cases

LINES = [
    case
    for case in fault_cases()
    if case.home.is_dir() and any(agent in str(case.data.get("agent")) for agent in ("claude", "codex"))
]
OTHER = {"claude": "codex", "codex": "claude"}


def get(number: str) -> Case:
    for case in fault_cases():
        if case.name.startswith(number + "-"):
            return case
    pytest.skip("the collection of faults does not stand beside the checkout")


def make_context(home: Path, data: Path, cwd: Path | str = "/", minute: int = 0) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 9, minute, tzinfo=UTC))
    return Context(Home(home), data, cwd=Path(cwd), clock=clock)


def snapshot(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def everything(ctx: Context) -> list[Listed]:
    return list(ls(ctx, every_folder=True, hidden=True))


def simple(groups: Any) -> list[dict[str, Any]]:
    """Groups as the cases tell them: role, text, calls by name and arguments, results by text.

    The cases keep neighbouring pieces of the assistant apart and join the parts of a result with a line end; the
    normal form joins both without anything between.
    """
    out: list[dict[str, Any]] = []
    for group in groups:
        one = {
            "role": group["role"],
            "text": _clean(group["text"]),
            "calls": [(c["name"], _plain(c["arguments"])) for c in group["tool_calls"]],
            "results": sorted(_clean(r["text"]).replace("\n", "") for r in group["tool_results"]),
        }
        last = out[-1] if out else None
        if last is not None and last["role"] == one["role"] == "assistant" and not last["results"]:
            last["text"] += one["text"]
            last["calls"] += one["calls"]
            last["results"] = one["results"]
        else:
            out.append(one)
    return out


def _clean(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _plain(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return json.dumps(arguments, sort_keys=True)
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return json.dumps(arguments)


def shown(messages: Any) -> list[dict[str, Any]]:
    return simple(
        {
            "role": g.role,
            "text": g.text,
            "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in g.tool_calls],
            "tool_results": [{"text": r.text} for r in g.tool_results],
        }
        for g in show_groups(messages)
    )


@pytest.mark.parametrize("case", LINES, ids=lambda c: c.name)
def test_reading_keeping_converting_change_nothing_and_restoring_gives_all_bytes(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    before = snapshot(home)
    with make_context(home, tmp_path / "data") as ctx:
        rows = everything(ctx)
        assert rows
        for row in rows:
            if row.state == "unreadable":
                continue
            opened = open_listed(ctx, row)
            assert b"".join(bytes(s.data) for s in opened.source.streams) is not None
            if opened.session.messages and row.agent in OTHER:
                _convert_once(ctx, row, tmp_path / "out")
        kept = [k for k in keep(ctx, []) if isinstance(k, Kept)]
        assert snapshot(home) == before
        streams = {row.path for row in rows if row.state != "unreadable" and not row.helper}
        for one in kept:
            try:
                restore(ctx, f"{one.agent}:{one.session_id}", to=tmp_path / "back")
            except Refused:
                assert case.name.startswith("17"), "two files of one name do not fit into one place"
    restored = snapshot(tmp_path / "back")
    assert restored.items() <= before.items()
    wanted = {str(Path(path).relative_to(home)) for path in streams}
    if not case.name.startswith("17"):
        assert wanted <= set(restored)


@pytest.mark.parametrize("case", LINES, ids=lambda c: c.name)
def test_what_is_written_for_the_other_agent_is_valid_and_paired(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    with make_context(home, tmp_path / "data") as ctx:
        for row in everything(ctx):
            if row.state == "unreadable" or row.agent not in OTHER or not open_listed(ctx, row).session.messages:
                continue
            made = _convert_once(ctx, row, tmp_path / "out")
            if made is None:
                continue
            data = Path(made.to.path).read_bytes()
            text = data.decode("utf-8")
            assert text.endswith("\n")
            assert "\r" not in text
            lines = [json.loads(line) for line in text[:-1].split("\n")]
            assert "\ud800" not in text
            _assert_paired(lines, made.to.agent)


def _convert_once(ctx: Context, row: Listed, out: Path) -> Converted | None:
    """Two files of one id are two branches of one session: the second one diverges from what the first one made."""
    if row.id.startswith("6c93c6f1") and out.exists():
        with pytest.raises(Refused, match="carries this conversation"):
            convert(ctx, row.path, to=OTHER[row.agent], out=out)
        return None
    return convert(ctx, row.path, to=OTHER[row.agent], out=out)


def _assert_paired(lines: list[dict[str, Any]], agent: str) -> None:
    waiting: list[str] = []
    names: set[str] = set()
    for line in lines:
        if agent == "codex":
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
            item = line["payload"]
            if line["type"] != "response_item":
                continue
            if item["type"] in ("function_call", "custom_tool_call"):
                waiting.append(item["call_id"])
                names.add(item["name"])
            elif item["type"].endswith("_output"):
                assert item["call_id"] in waiting, "a result stands behind its call, once"
                waiting.remove(item["call_id"])
            elif item["type"] == "message" and item["role"] == "user":
                assert not waiting, "every call is answered before the next user text"
            continue
        blocks = line.get("message", {}).get("content", [])
        for block in blocks if isinstance(blocks, list) else [{"type": "text", "text": blocks}]:
            if block["type"] == "tool_use":
                waiting.append(block["id"])
                names.add(block["name"])
                assert isinstance(block["input"], dict)
            elif block["type"] == "tool_result":
                assert block["tool_use_id"] in waiting
                waiting.remove(block["tool_use_id"])
            elif block["type"] == "text":
                assert block["text"], "no agent's API takes an empty text"
                if line["type"] == "user":
                    assert not waiting
    assert not waiting
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)


@pytest.mark.parametrize(
    "case", [c for c in LINES if isinstance((c.data.get("expected") or {}).get("messages"), list)], ids=lambda c: c.name
)
def test_the_messages_are_those_of_the_case(case: Case, tmp_path: Path) -> None:
    home = case.copy_home(tmp_path / "home")
    with make_context(home, tmp_path / "data") as ctx:
        rows = [row for row in everything(ctx) if row.state != "unreadable" and not row.helper]
        if len(rows) != 1:
            pytest.skip("several sessions: the case is tested by its own test or its reader's")
        session = open_listed(ctx, rows[0]).session
    wanted = simple(to_groups(case.data["expected"]["messages"]))
    assert shown(session.history) == wanted
    effective = case.data["expected"].get("effective_context")
    if effective:
        assert shown(session.messages) == simple(to_groups(effective))


def test_13_three_projects_in_one_folder(tmp_path: Path) -> None:
    case = get("13")
    home = case.copy_home(tmp_path / "home")
    for folder, ids in case.data["expected"]["sessions_by_workspace"].items():
        with make_context(home, tmp_path / "data", folder) as ctx:
            assert [row.id for row in ls(ctx)] == ids
            assert open_session(ctx, "@").session.id == ids[0]


def test_14_a_renamed_folder_is_told_and_nothing_is_guessed(tmp_path: Path) -> None:
    case = get("14")
    home = case.copy_home(tmp_path / "home")
    there = tmp_path / "new-shop"
    there.mkdir()
    with make_context(home, tmp_path / "data") as ctx:
        (row,) = everything(ctx)
        with pytest.raises(Refused) as caught:
            resume(ctx, row.id)
        assert "/home/dev1/work/shop" in caught.value.message
        made = convert(ctx, row.id, to="codex", cwd=str(there))
        assert open_session(ctx, f"codex:{made.to.session_id}").session.cwd == str(there)


def test_15_one_folder_whatever_the_case_of_the_drive(tmp_path: Path) -> None:
    case = get("15")
    home = case.copy_home(tmp_path / "home")
    ((_, ids),) = case.data["expected"]["sessions_by_workspace"].items()
    with make_context(home, tmp_path / "data") as ctx:
        for spelling in ("C:\\work\\shop", "c:/Work/shop", "/mnt/c/work/shop"):
            assert sorted(row.id for row in ls(ctx, cwd=spelling)) == sorted(ids)


def test_17_one_id_twice_is_ambiguous_by_id_and_clear_by_path(tmp_path: Path) -> None:
    case = get("17")
    home = case.copy_home(tmp_path / "home")
    with make_context(home, tmp_path / "data") as ctx:
        rows = everything(ctx)
        with pytest.raises(AmbiguousError) as caught:
            open_session(ctx, rows[0].id)
        assert all(row.path in str(caught.value) for row in rows)
        for path, messages in case.data["expected"]["branches"].items():
            session = open_session(ctx, str(home.parent / path)).session
            assert shown(session.messages) == simple(to_groups(messages))


def test_31_nothing_outside_is_ever_touched(tmp_path: Path) -> None:
    case = get("31")
    home = case.copy_home(tmp_path / "home")
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim.jsonl"
    victim.write_text('{"keep":"me"}\n')
    folder = home / ".claude/projects/-home-dev1-work-shop"
    (folder / "00000000-0000-4000-8000-00000000beef.jsonl").symlink_to(victim)
    before = snapshot(tmp_path)
    with make_context(home, tmp_path / "data") as ctx:
        rows = everything(ctx)
        assert len(rows) >= 8
        for row in rows:
            for act in (
                lambda r=row: convert(ctx, r.path, to=OTHER[r.agent]),
                lambda r=row: convert(ctx, r.path, to=OTHER[r.agent], out=tmp_path / "out"),
                lambda r=row: list(keep(ctx, [r.path])),
                lambda r=row: restore(ctx, r.path, to=tmp_path / "back"),
            ):
                with contextlib.suppress(ClewError):
                    act()
    after = snapshot(tmp_path)
    changed = {path for path in after if before.get(path) != after[path]}
    allowed = (
        "data/",
        "home/.codex/sessions/",
        "home/.claude/projects/",
        "out/.codex/",
        "out/.claude/",
        "back/.claude/",
    )
    assert all(path.startswith(allowed) for path in changed)
    assert before.items() <= after.items()
    assert victim.read_text() == '{"keep":"me"}\n'


def test_34_a_file_that_two_processes_write(tmp_path: Path) -> None:
    case = get("34")
    race = case.home.parent / "race.py"
    writer = subprocess.Popen([sys.executable, str(race), str(tmp_path), "3"], stdout=subprocess.DEVNULL)
    home = tmp_path / "home"
    seen: set[str] = set()
    try:
        deadline = time.monotonic() + 60
        while writer.poll() is None and time.monotonic() < deadline:
            if not home.exists():
                continue
            with make_context(home, tmp_path / "data") as ctx:
                for row in everything(ctx):
                    session = open_listed(ctx, row).session
                    texts = {m.text for m in session.history}
                    texts |= {m.text for branch in session.branches for m in branch.messages}
                    assert seen <= texts, "what was read stays read"
                    seen = texts
    finally:
        writer.kill()
        writer.wait()
    assert len(seen) > 10


def test_35_the_files_are_the_list_not_the_agents_index(tmp_path: Path) -> None:
    case = get("35")
    home = case.copy_home(tmp_path / "home")
    with make_context(home, tmp_path / "data") as ctx:
        rows = everything(ctx)
    assert sorted(row.id for row in rows) == sorted(case.data["expected"]["sessions"])
    assert all(row.messages and row.title for row in rows)
