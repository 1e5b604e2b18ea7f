"""The main promise, judged by the real agents: there, one real turn, and home again.

For each session: clew writes it for the other agent; that agent lists it, resumes it, and sends every text, call and
result of the conversation to its model, in order; it takes one real turn; clew brings it home; every old byte is
unchanged, the new turn is there, and the first agent resumes and sends all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agents.lab import kimi, openhands
from agents.lab.judge import judge_sees
from agents.lab.needs import need_agent
from agents.lab.script import Call, Step, Text, say
from agents.lab.seen import Seen
from clew.errors import Refused
from clew.formats.cline.writer import NAMES as CLINE_NAMES
from clew.formats.droid.writer import NAMES as DROID_NAMES
from clew.formats.framing import frame_document
from clew.formats.marks import Names, wrap_arguments
from clew.formats.protocol import Home
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.converted import Converted
from clew.verbs.refer import open_session
from clew.verbs.show import show_groups
from clew_corpus import Case, own_cases, shared_cases

pytestmark = pytest.mark.agent

OTHER = {
    "claude": "codex",
    "cline": "claude",
    "codex": "claude",
    "gemini": "claude",
    "grok": "claude",
    "kimi": "codex",
    "qwen": "codex",
    "pi": "claude",
    "droid": "codex",
    "vibe": "claude",
    "openhands": "codex",
}
CALLS = {
    "codex": Call("exec_command", {"cmd": "echo from-there"}, "call_there_1"),
    "claude": Call("Bash", {"command": "echo from-there", "description": "say so"}, "toolu_there_1"),
    "gemini": Call("run_shell_command", {"command": "echo from-there", "description": "say so"}, "call_there_1"),
    "grok": Call("run_terminal_command", {"command": "echo from-there", "description": "say so"}, "call_there_1"),
    "kimi": Call("Bash", {"command": "echo from-there"}, "call_there_1"),
    "pi": Call("bash", {"command": "echo from-there"}, "call_there_1"),
    "droid": Call(
        "Execute",
        {"command": "echo from-there", "summary": "say so", "riskLevelReason": "It prints.", "riskLevel": "low"},
        "call_there_1",
    ),
    "cline": Call("run_commands", {"commands": ["echo from-there"]}, "call_there_1"),
    "vibe": Call("bash", {"command": "echo from-there"}, "call_there_1"),
    "openhands": Call("terminal", {"command": "echo from-there", "security_risk": "LOW"}, "call_there_1"),
    "qwen": Call("run_shell_command", {"command": "echo from-there", "is_background": False}, "call_there_1"),
}

AGENTS = ("claude", "cline", "codex", "droid", "gemini", "grok", "kimi", "pi", "qwen")
SLOW = ("simple", "tools", "surrogate")
"""Mistral Vibe and OpenHands take long for a turn: some cases are enough, of those that they can hold."""

CASES = [
    case
    for case in (*(c for a in AGENTS for c in own_cases(a)), *(c for a in AGENTS for c in shared_cases(a)))
    if case.session_id and case.paths and case.data.get("version")
]
CASES += [case for case in shared_cases("vibe") if case.name in SLOW and case.data.get("version")]
CASES += own_cases("openhands")
PAIRS = [
    *((case, OTHER[case.agent]) for case in CASES),
    *(
        (case, there)
        for case in own_cases("claude")
        for there in ("cline", "droid", "gemini", "grok", "kimi", "pi", "qwen")
    ),
    *((case, there) for case in own_cases("claude") if case.name in SLOW for there in ("openhands", "vibe")),
]


def make_context(home: Path, folder: Path, minute: int) -> Context:
    return Context(
        Home(home),
        home / "clew-data",
        cwd=folder,
        clock=FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC)),
    )


def groups_of(ctx: Context, ref: str) -> list[dict[str, Any]]:
    session = open_session(ctx, ref).session
    return [
        {
            "role": group.role,
            "text": group.text,
            "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in group.tool_calls],
            "results": [r.text for r in group.tool_results],
        }
        for group in show_groups(session.messages)
    ]


PATTERNS = {"cline": CLINE_NAMES, "droid": DROID_NAMES}
"""What tools may be called where not all that APIs take is good."""


def legal_names(groups: Iterable[dict[str, Any]], agent: str) -> Callable[[str], str]:
    names = Names(PATTERNS[agent]) if agent in PATTERNS else Names()
    names.reserve(call["name"] for group in groups for call in group["tool_calls"])
    return names.legal


def as_sent(groups: list[dict[str, Any]], agent: str) -> list[dict[str, Any]]:
    """Claude Code wants objects as arguments: a free text is sent inside clew's wrapper.

    Codex's own interruption notes are kept apart by the driver, as what the harness adds. Kimi Code's word on a failure
    is taken off what it sends, and so it is here. Cline sends a person's texts without the blanks around them.
    """
    if agent == "codex":
        return [group for group in groups if not group["text"].startswith("<turn_aborted>")]
    return [
        {
            **group,
            "text": group["text"].strip() if agent == "cline" and group["role"] == "user" else group["text"],
            "results": [kimi.bare(text) if agent == "kimi" else text for text in group["results"]],
            "tool_calls": [
                {"name": c["name"], "arguments": wrap_arguments(c["arguments"])[0].decode()}
                for c in group["tool_calls"]
            ],
        }
        for group in groups
    ]


def heard(seen: Seen, agent: str, said: Sequence[dict[str, Any]] = ()) -> Seen:
    """Returns what was seen, without what Kimi Code and OpenHands say of a failure.

    What Kimi Code keeps of the past behind a compaction it sends joined: this is taken apart where `said` has it so.
    """
    if agent == "openhands":
        return openhands.heard(seen)
    if agent != "kimi":
        return seen
    bare = [
        {**one, "tool_results": [{**r, "text": kimi.bare(r["text"])} for r in one["tool_results"]]}
        for one in seen.messages
    ]
    return dataclasses.replace(seen, messages=tuple(kimi.apart(bare, said)))


def is_listed(
    driver: ModuleType, home: Path, folder: Path, made: Converted, said: list[dict[str, Any]], own_title: str
) -> bool:
    """Most list ids; Claude Code's picker shows titles alone: a prompt without its tags, or a title of its own."""
    texts = ["".join(g["text"].split()) for g in said if g["role"] == "user" and g["text"].strip()]
    texts.append("".join(own_title.split()) or "-")
    for row in driver.list_sessions(home, folder):
        title = "".join(str(row["title"] or "").split()).rstrip("…")
        if row["id"] == made.to.session_id or (row["id"] is None and any(title[:12] in t for t in texts)):
            return True
    return False


def settled(data: bytes, agent: str) -> bytes:
    """Returns what may not change: all, or what stands before the end of the list in a document."""
    if agent != "cline":
        return data
    frame = frame_document(data, "messages")
    assert frame is not None
    return data[: frame.closed]


def name_of(value: Any) -> str:
    return f"{value}-{'own' if 'fixtures' in str(value.home) else 'shared'}" if isinstance(value, Case) else str(value)


@pytest.mark.parametrize(("case", "there"), PAIRS, ids=name_of)
def test_there_one_real_turn_and_home_again(case: Case, there: str, tmp_path: Path) -> None:
    here = case.agent
    first, second = need_agent(here), need_agent(there)
    home, folder = case.copy_home(tmp_path / "home"), tmp_path / "work"
    folder.mkdir()
    paths = case.copied_paths(home)
    if hasattr(first, "rehome"):  # an agent that resumes a session in its own folder only
        paths = (first.rehome(home, str(case.session_id), folder),)
    before = {path: path.read_bytes() for path in paths}
    ref = f"{here}:{case.session_id}"

    with make_context(home, folder, 0) as ctx:
        said, own_title = groups_of(ctx, ref), open_session(ctx, ref).session.title
        if not said:
            with pytest.raises(Refused, match="no messages"):
                convert(ctx, ref, to=there)
            return
        made = convert(ctx, ref, to=there, cwd=str(folder))
    assert is_listed(second, home, folder, made, said, own_title)

    script: list[Step] = [
        Step([Text("I look once more."), CALLS[there]]),
        say("The turn in the other agent is done."),
    ]
    seen = second.resume(home, folder, made.to.session_id, "One more turn, please.", script)
    assert judge_sees(heard(seen, there, said), as_sent(said, there), rename=legal_names(said, there)) == []
    assert seen.reply

    with make_context(home, folder, 5) as ctx:
        back = convert(ctx, f"{there}:{made.to.session_id}", to=here)
        home_again = groups_of(ctx, f"{here}:{back.to.session_id}")
    assert back.to.session_id == case.session_id
    for path, data in before.items():
        assert path.read_bytes().startswith(settled(data, here)), f"{path.name}: an old byte changed"
    assert home_again[: len(said)] == said
    new_texts = "\n".join(g["text"] for g in home_again[len(said) :])
    assert "One more turn, please." in new_texts
    assert "The turn in the other agent is done." in new_texts

    final = first.resume(home, folder, case.session_id, "And a last one here.")
    new = legal_names(home_again[len(said) :], here)  # what is home again keeps its names
    old = {call["name"] for group in said for call in group["tool_calls"]}
    rename = {name: name for name in old}
    final = heard(final, here, said)
    assert judge_sees(final, as_sent(home_again, here), rename=lambda n: rename.get(n) or new(n)) == []
