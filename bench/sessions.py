"""Makes synthetic sessions for the benchmarks: real-shaped Claude Code and Codex files of any size, deterministic.

Texts are taken from the Python standard library's own sources. Sizes of records follow those of real sessions
(median about 1.6 kB, 95 % below 6.6 kB, a few of 30 kB and more).
"""

from __future__ import annotations

import json
import random
import sysconfig
import uuid
from collections.abc import Iterator
from pathlib import Path


def corpus() -> str:
    """Returns a few MB of text to take pieces from."""
    folder = Path(sysconfig.get_path("stdlib"))
    return "\n".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("*.py"))[:120])


class Texts:
    """Gives pieces of text with the size distribution of real tool results and messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.text = corpus()

    def piece(self, median: int) -> str:
        size = min(int(self.random.lognormvariate(0, 1.0) * median), 60_000)
        at = self.random.randrange(len(self.text) - 60_000)
        return self.text[at : at + max(size, 8)]

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def claude_lines(size: int, session_id: str, cwd: str = "/home/dev1/proj/bench", seed: int = 1) -> Iterator[str]:
    """Yields the lines of a Claude Code session of about `size` bytes."""
    texts = Texts(seed)
    parent: str | None = None
    made, turn = 0, 0

    def record(kind: str, message: dict[str, object], **more: object) -> str:
        nonlocal parent
        own = texts.new_uuid()
        value = {
            "parentUuid": parent, "isSidechain": False, "type": kind, "message": message, "uuid": own,
            "timestamp": f"2026-11-{1 + turn % 28:02}T10:{turn % 60:02}:00.000Z", "userType": "external",
            "entrypoint": "cli", "cwd": cwd, "sessionId": session_id, "version": "2.1.332", "gitBranch": "main", **more,
        }  # fmt: skip
        parent = own
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"

    def assistant(*content: dict[str, object]) -> Iterator[str]:
        reply = f"msg_{texts.new_uuid()}"
        for number, block in enumerate(content):
            yield record(
                "assistant",
                {
                    "id": reply, "type": "message", "role": "assistant", "model": "claude-opus-5-5",
                    "content": [block], "stop_reason": "tool_use", "stop_sequence": None,
                    "usage": {"input_tokens": 4315, "output_tokens": 81, "service_tier": "standard"},
                },
                apiBlockIndex=number,
            )  # fmt: skip

    def turn_lines() -> Iterator[str]:
        yield record("user", {"role": "user", "content": texts.piece(200)})
        for _ in range(texts.random.randrange(1, 6)):
            call = f"toolu_{texts.new_uuid()}"
            yield from assistant(
                {"type": "text", "text": texts.piece(120)},
                {"type": "tool_use", "id": call, "name": "Bash",
                 "input": {"command": texts.piece(80), "description": "look"}},
            )  # fmt: skip
            text = texts.piece(1600)
            yield record(
                "user",
                {"role": "user", "content": [{"tool_use_id": call, "type": "tool_result", "content": text,
                                              "is_error": False}]},
                toolUseResult={"stdout": text, "stderr": "", "interrupted": False},
            )  # fmt: skip
        yield from assistant({"type": "text", "text": texts.piece(500)})

    while made < size:
        turn += 1
        for line in turn_lines():
            made += len(line.encode())
            yield line


def codex_lines(size: int, session_id: str, cwd: str = "/home/dev1/proj/bench", seed: int = 1) -> Iterator[str]:
    """Yields the lines of a Codex rollout (legacy history mode) of about `size` bytes."""
    texts = Texts(seed)
    made, turn = 0, 0

    def line(kind: str, payload: dict[str, object]) -> str:
        stamp = f"2026-11-{1 + turn % 28:02}T10:{turn % 60:02}:00.000Z"
        value = {"timestamp": stamp, "type": kind, "payload": payload}
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"

    yield line("session_meta", {"id": session_id, "timestamp": "2026-11-01T10:00:00.000Z", "cwd": cwd,
                                "originator": "codex_cli_rs", "cli_version": "0.171.0"})  # fmt: skip

    def turn_lines() -> Iterator[str]:
        text = texts.piece(200)
        yield line("response_item", {"type": "message", "role": "user",
                                     "content": [{"type": "input_text", "text": text}]})  # fmt: skip
        yield line("event_msg", {"type": "user_message", "message": text, "kind": "plain"})
        for _ in range(texts.random.randrange(1, 6)):
            call = f"call_{texts.new_uuid()}"
            arguments = json.dumps({"cmd": texts.piece(80)})
            yield line("response_item", {"type": "function_call", "name": "exec_command", "arguments": arguments,
                                         "call_id": call})  # fmt: skip
            yield line("response_item", {"type": "function_call_output", "call_id": call, "output": texts.piece(1600)})
        text = texts.piece(500)
        yield line("response_item", {"type": "message", "role": "assistant",
                                     "content": [{"type": "output_text", "text": text}]})  # fmt: skip
        yield line("event_msg", {"type": "agent_message", "message": text})

    while made < size:
        turn += 1
        for one in turn_lines():
            made += len(one.encode())
            yield one


def write_claude(home: Path, size: int, session_id: str, cwd: str = "/home/dev1/proj/bench", seed: int = 1) -> Path:
    """Writes a Claude Code session below a home folder and returns its path."""
    folder = "".join(c if c.isascii() and c.isalnum() else "-" for c in cwd)
    path = home / ".claude" / "projects" / folder / f"{session_id}.jsonl"
    return _write(path, claude_lines(size, session_id, cwd, seed))


def write_codex(home: Path, size: int, session_id: str, cwd: str = "/home/dev1/proj/bench", seed: int = 1) -> Path:
    """Writes a Codex rollout below a home folder and returns its path."""
    path = home / ".codex" / "sessions" / "2026" / "11" / "01" / f"rollout-2026-11-01T10-00-00-{session_id}.jsonl"
    return _write(path, codex_lines(size, session_id, cwd, seed))


def _write(path: Path, lines: Iterator[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
    path.chmod(0o600)
    return path
