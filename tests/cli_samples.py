"""Sessions, conversations and conversions as the verbs return them, for tests of the command line."""

from datetime import UTC, datetime

import msgspec

from clew.conversation.loss import Damage, Loss
from clew.verbs.converted import Command, Converted, End, Report
from clew.verbs.ls import Listed
from clew.verbs.show import Shown, ShownBoundary, ShownBranch, ShownCall, ShownGroup, ShownResult

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)

HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07 \x1b[2J\x1b[H \x9b31m \x90q\x9c \x7f \x00 \r over \u202eevil\u202c \u2066x\u2069 "
    "a\u200bb \ufeff c\u200dd \U000e0041 \ud800 \x1b[8mhidden\x1b[0m \x85 \u2028 \x0e"
)
"""Everything that must not reach a terminal as itself, in one text."""


def make_row(**fields: object) -> Listed:
    """Returns one row of a list, with these fields changed."""
    row = Listed(
        "claude",
        "86d7aaaa-0000-4000-8000-000000000001",
        "/home/dev/.claude/projects/x/86d7.jsonl",
        "/home/dev/shop-api",
        "Fix the parser for torn tails",
        "2026-11-20T12:00:00.000Z",
        "2026-11-20T13:12:00.000Z",
        41,
        "opus",
        "idle",
        short="86d7",
    )
    return msgspec.structs.replace(row, **fields)


def make_rows() -> list[Listed]:
    """Returns a list with today, yesterday, a month and an earlier year, several states, and wide characters."""
    return [
        make_row(state="live"),
        make_row(
            agent="codex",
            id="01a2bbbb",
            short="01a2",
            title="Add retries to the upload, and say in the log how often it was tried before it gave up",
            updated="2026-11-20T11:20:00.000Z",
            messages=18,
        ),
        make_row(
            id="9c1e",
            short="9c1e",
            title="解析器を直す 🚀 and then the tests of the parser too",
            updated="2026-11-19T22:05:00.000Z",
            cwd="/home/dev/longhaul",
            messages=1204,
        ),
        make_row(
            id="77b0",
            short="77b0",
            title="Part 2: look at the cache\nonce more",
            updated="2026-10-12T09:54:00.000Z",
            cwd="/home/dev/longhaul",
            messages=500,
            state="gone",
            detail="claude no longer has it; clew holds capture 4",
        ),
        make_row(
            agent="codex",
            id="01b7c",
            short="01b7c",
            title="",
            updated="2025-03-02T09:54:00.000Z",
            messages=0,
            state="unreadable",
            detail="no permission",
        ),
        make_row(id="ffff", short="ffff", title="no time at all", created="", updated="", state="damaged"),
    ]


def make_group(role: str, text: str, **fields: object) -> ShownGroup:
    """Returns one entry of a conversation."""
    group = ShownGroup(role, text, (), (), "0" * 64, "user" if role == "user" else "model", "", 0)
    return msgspec.structs.replace(group, **fields)


def make_shown(**fields: object) -> Shown:
    """Returns a conversation with prompts, calls, a failure, an edit, an image and a call without an answer."""
    edit = '{"file_path": "/home/dev/shop-api/app.py", "old_string": "a\\nb\\nc", "new_string": "a\\nB\\nc\\nd"}'
    shown = Shown(
        "claude",
        "86d7aaaa-0000-4000-8000-000000000001",
        "/home/dev/shop-api",
        "Read UTF-8 in load()",
        "opus",
        "anthropic",
        (
            make_group("user", "please make load() read UTF-8\n\n    load(path)", time="2026-11-20T09:54:00.000Z"),
            make_group(
                "assistant",
                "I'll change the loader and its tests. It is a long sentence that has to be wrapped somewhere, "
                "since no terminal is as wide as that.\n\n```python\ndef load(path):\n    return 1\n```",
                tool_calls=(
                    ShownCall("c1", "Edit", edit),
                    ShownCall("c2", "Bash", '{"command": "pytest -q", "description": "Run the tests"}'),
                    ShownCall("c3", "Task", '{"description": "Find callers", "prompt": "Who calls load()?\\nAll."}'),
                ),
                tool_results=(
                    ShownResult("c1", "The file was edited.", False),
                    ShownResult("c2", "F.\n\x1b[31m1 failed\x1b[0m\nexit 1: 1 failed, 41 passed\n", True),
                ),
                reasoning=1,
            ),
            make_group("assistant", "", tool_calls=(), images=1),
            make_group("user", "[interrupted]", origin="agent", kind="interruption"),
            make_group("user", "look at this", images=2, time="2026-11-20T10:01:00.000Z"),
            make_group("assistant", "# Done\nIt reads UTF-8 now."),
        ),
        (Damage("86d7.jsonl", 117, 90112, "torn tail", line=118),),
        (),
        "/home/dev/.claude/projects/x/86d7.jsonl",
        "2026-11-20T09:54:00.000Z",
        "2026-11-20T10:02:00.000Z",
        "live",
        "t0123456789abcdef",
    )
    return msgspec.structs.replace(shown, **fields)


def make_full() -> Shown:
    """Returns a full history with a compaction and a branch that was left."""
    return make_shown(
        full=True,
        boundaries=(ShownBoundary(4, "compacted", "155,000 tokens before"),),
        branches=(ShownBranch(2, 5, (make_group("user", "no, wait"),) * 6),),
        damage=(),
    )


def make_converted(**report: object) -> Converted:
    """Returns a conversion of 41 messages, with these fields of its report changed."""
    base = Report("plain", 0, 41, (Loss("reasoning blocks", 12), Loss("images", 1)), messages=41)
    return Converted(
        End("claude", "86d7aaaa", "/home/dev/.claude/projects/x/86d7.jsonl", "/home/dev/shop-api"),
        End("codex", "01a2bbbb", "/home/dev/.codex/a.jsonl", "/home/dev/shop-api", ("/home/dev/.codex/a.jsonl",)),
        Command(("codex", "resume", "01a2bbbb"), "/home/dev/shop-api"),
        msgspec.structs.replace(base, **report),
        "t0123456789abcdef",
    )
