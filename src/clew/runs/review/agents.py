"""How each agent is called without a terminal, and what it writes: one class an agent.

Every call begins a fresh session. A question goes in on stdin where the agent reads it there, so that no length limit
of a command line cuts it. Agents are asked to read only: each gets its reading tools or its read-only mode, and, where
it has a way, neither the settings of the folder under review nor any server. The forms were tried on the versions that
docs/formats names; what an agent writes is read leniently, and what is no answer is an ItemFailed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from clew.errors import UsageError
from clew.runs.log import SessionRef
from clew.runs.operation import ItemFailed, Usage
from clew.runs.review.asking import Answer
from clew.runs.review.headless import Call, HeadlessAgent

MAX_ARGUMENT_BYTES = 120_000
"""What fits into one argument on Linux (128 KiB with its end), with some room."""

_ADDRESSES = ".env"
"""Some agents take variables, the address of their provider among them, from this file of the folder they run in."""

_Members = dict[str, Any]


class ClaudeHeadless:
    """Claude Code: `claude -p`, one JSON object at the end."""

    name = "claude"
    obeys: tuple[str, ...] = ()
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: reading tools only, the user's settings only, no servers, no slash commands."""
        tools = "Read,Grep,Glob"
        fixed = ("-p", "--output-format", "json", "--session-id", session_id, "--tools", tools, "--allowedTools", tools)
        safe = ("--setting-sources", "user", "--strict-mcp-config", "--disable-slash-commands")
        return Call((program, *fixed, *safe, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the text of the `result` object."""
        return _read_result(self.name, stdout, session_id)


class CodexHeadless:
    """Codex: `codex exec --json`, one event a line."""

    name = "codex"
    obeys: tuple[str, ...] = (".codex",)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: read-only sandbox; Codex chooses the session's id itself."""
        fixed = ("exec", "--json", "--sandbox", "read-only", "--skip-git-repo-check", "--color", "never")
        return Call((program, *fixed, "--cd", str(folder), *_model("--model", model), "-"), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the last agent message of the turn."""
        text, why, usage = "", "", Usage()
        session: SessionRef | None = None
        for event in _objects(stdout):
            kind = event.get("type")
            if kind == "thread.started" and (thread := _string(event, "thread_id")):
                session = SessionRef(self.name, thread)
            elif kind == "item.completed":
                item = _members(event.get("item"))
                if item.get("type") == "agent_message":
                    text = _string(item, "text") or text
            elif kind == "turn.completed":
                usage = _codex_usage(event.get("usage"))
            elif kind == "turn.failed":
                why, text = _string(_members(event.get("error")), "message") or why, ""
            elif kind == "error":
                why = _string(event, "message") or why
        return _answered(self.name, text, why, usage, session)


class GeminiHeadless:
    """Gemini CLI: the question on stdin, one JSON object at the end."""

    name = "gemini"
    obeys: tuple[str, ...] = (".gemini", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: the default mode, in which nobody can permit a tool that changes anything.

        The folder is trusted for this call where it holds nothing that trust would put into effect; else it is the
        user who must have trusted it, and the agent says so.
        """
        fixed = ("--output-format", "json", "--session-id", session_id, "--approval-mode", "default")
        safe = ("--extensions", "none", "--allowed-mcp-server-names", "none")
        trusted = () if any((folder / name).exists() for name in self.obeys) else ("--skip-trust",)
        return Call((program, *fixed, *safe, *trusted, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the `response` of the object."""
        told = _last_object(stdout)
        session = SessionRef(self.name, _string(told, "session_id") or session_id)
        models = _members(_members(told.get("stats")).get("models"))
        tokens = [_members(_members(value).get("tokens")) for value in models.values()]
        usage = Usage(
            sum(_count(one, "prompt") for one in tokens), sum(_count(one, "candidates", "thoughts") for one in tokens)
        )
        why = _string(_members(told.get("error")), "message")
        text = "" if why else _string(told, "response")
        return _answered(self.name, text, why, usage, session, next(iter(models), ""))


class QwenHeadless:
    """Qwen Code: the question on stdin, a list of messages, the result last."""

    name = "qwen"
    obeys: tuple[str, ...] = (".qwen", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: the default mode without hooks, extensions, skills and servers."""
        fixed = ("--output-format", "json", "--session-id", session_id, "--approval-mode", "default", "--safe-mode")
        return Call((program, *fixed, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the text of the `result` object."""
        return _read_result(self.name, stdout, session_id)


class OpenCodeHeadless:
    """OpenCode: `opencode run --format json`, one event a line."""

    name = "opencode"
    obeys: tuple[str, ...] = (".opencode", "opencode.json", "opencode.jsonc", _ADDRESSES)
    names_provider = True

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: its planning agent, whatever changes or reaches out denied, no plugins.

        It has a title, or another request would be paid for to find one.
        """
        fixed = ("run", "--format", "json", "--pure", "--agent", "plan", "--title", "Review of a file")
        denied = dict.fromkeys(("edit", "bash", "webfetch", "websearch", "task", "external_directory"), "deny")
        environment = {"OPENCODE_PERMISSION": json.dumps(denied), "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        return Call((program, *fixed, *_model("--model", model)), question, environment)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the texts of the last message."""
        texts: dict[str, str] = {}
        why, read, written = "", 0, 0
        session: SessionRef | None = None
        for event in _objects(stdout):
            part = _members(event.get("part"))
            if found := _string(event, "sessionID"):
                session = SessionRef(self.name, found)
            if event.get("type") == "text":
                message = _string(part, "messageID")
                texts[message] = texts.get(message, "") + _string(part, "text")
            elif event.get("type") == "step_finish":
                tokens = _members(part.get("tokens"))
                read += _count(tokens, "input") + _count(_members(tokens.get("cache")), "read", "write")
                written += _count(tokens, "output", "reasoning")
            elif event.get("type") == "error":
                error = _members(event.get("error"))
                why = _string(_members(error.get("data")), "message") or _string(error, "name") or "it failed"
        text = "" if why or not texts else texts[list(texts)[-1]]
        return _answered(self.name, text, why, Usage(read, written), session)


class GrokHeadless:
    """Grok: one JSON object at the end; it reads a question from a file, so from /dev/stdin."""

    name = "grok"
    obeys: tuple[str, ...] = (".grok", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: reading tools only, nobody asked, nothing delegated, nothing looked up."""
        fixed = ("--prompt-file", "/dev/stdin", "--verbatim", "--output-format", "json", "--session-id", session_id)
        tools = ("--tools", "read_file,grep,list_dir", "--permission-mode", "dontAsk")
        safe = ("--no-subagents", "--disable-web-search")
        return Call((program, *fixed, *tools, *safe, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the `text` of the object."""
        told = _last_object(stdout)
        session = SessionRef(self.name, _string(told, "sessionId") or session_id)
        why = _string(told, "message") or _string(told, "error")
        text = "" if told.get("type") == "error" else _string(told, "text")
        return _answered(
            self.name, text, why, _claude_usage(told.get("usage")), session, _main_model(told.get("modelUsage"))
        )


class KimiHeadless:
    """Kimi Code: the question as an argument, one message a line."""

    name = "kimi"
    obeys: tuple[str, ...] = (".kimi-code", ".kimi", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: without a terminal it permits itself everything, so it gets an agent that can only read.

        Raises ItemFailed (`input`) for a question that no argument holds.
        """
        if len(question) > MAX_ARGUMENT_BYTES:
            reason = f"kimi takes a question as an argument only: {len(question)} bytes, at most {MAX_ARGUMENT_BYTES}"
            raise ItemFailed("input", reason)
        reader = Path(__file__).with_name("kimi-reader.md")
        fixed = ("--prompt", question.decode("utf-8", "replace").replace("\0", "\ufffd"))
        form = ("--output-format", "stream-json", "--agent-file", str(reader))
        return Call((program, *fixed, *form, *_model("--model", model)))

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the last message of the assistant; it tells no cost."""
        text, session = "", None
        for line in _objects(stdout):
            if line.get("role") == "assistant":
                text = _string(line, "content") or text
            elif line.get("type") == "session.resume_hint" and (found := _string(line, "session_id")):
                session = SessionRef(self.name, found)
        return _answered(self.name, text, "", Usage(), session)


class PiHeadless:
    """pi: the question on stdin, one event a line."""

    name = "pi"
    obeys: tuple[str, ...] = (".pi", _ADDRESSES)
    names_provider = True

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: reading tools only, nothing of the folder's own settings, no extensions and servers."""
        fixed = ("--mode", "json", "--print", "--session-id", session_id, "--tools", "read,grep,find,ls")
        safe = ("--no-approve", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-mcp")
        return Call((program, *fixed, *safe, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the last message of the assistant; each tells its own cost."""
        text, why, model, read, written = "", "", "", 0, 0
        session = SessionRef(self.name, session_id)
        for event in _objects(stdout):
            message = _members(event.get("message"))
            if event.get("type") == "session" and (found := _string(event, "id")):
                session = SessionRef(self.name, found)
            if event.get("type") != "message_end" or message.get("role") != "assistant":
                continue
            usage = _members(message.get("usage"))
            read += _count(usage, "input", "cacheRead", "cacheWrite")
            written += _count(usage, "output")
            model = _string(message, "model") or model
            text = _texts(message.get("content"))
            why = _string(message, "errorMessage") if message.get("stopReason") in ("error", "aborted") else ""
        return _answered(self.name, "" if why else text, why, Usage(read, written), session, model)


class DroidHeadless:
    """Droid: `droid exec`, the question on stdin, one JSON object at the end."""

    name = "droid"
    obeys: tuple[str, ...] = (".factory", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: its read-only mode with reading tools alone; Droid chooses the session's id itself."""
        fixed = ("exec", "--output-format", "json", "--only-tools", "Read,LS,Grep,Glob")
        return Call((program, *fixed, *_model("--model", model)), question)

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the text of the `result` object."""
        return _read_result(self.name, stdout, "")


class VibeHeadless:
    """Mistral Vibe: the question on stdin, the list of all messages at the end."""

    name = "vibe"
    obeys: tuple[str, ...] = (".vibe", _ADDRESSES)
    names_provider = False

    def call(self, program: str, model: str, session_id: str, folder: Path, question: bytes) -> Call:
        """Returns the call: the agent that asks, and nobody to ask; a model is named by a variable alone."""
        fixed = ("--prompt", "--output", "json", "--agent", "ask")
        return Call((program, *fixed), question, {"VIBE_ACTIVE_MODEL": model} if model else {})

    def read(self, stdout: bytes, session_id: str) -> Answer:
        """Returns the last message of the assistant; it tells no cost."""
        text, session = "", None
        with contextlib.suppress(ValueError, RecursionError):
            whole: object = json.loads(stdout)
            for one in map(_members, cast("list[object]", whole) if isinstance(whole, list) else []):
                if found := _string(one, "sessionId"):
                    session = SessionRef(self.name, found)
                if one.get("role") == "assistant":
                    text = _texts(one.get("content")) or text
        return _answered(self.name, text, "", Usage(), session)


HEADLESS: dict[str, HeadlessAgent] = {
    agent.name: agent
    for agent in (
        ClaudeHeadless(),
        CodexHeadless(),
        GeminiHeadless(),
        QwenHeadless(),
        OpenCodeHeadless(),
        GrokHeadless(),
        KimiHeadless(),
        PiHeadless(),
        DroidHeadless(),
        VibeHeadless(),
    )
}
"""The agents that can be asked without a terminal, by their short names; without a choice the first that is here."""


def get_headless(name: str) -> HeadlessAgent:
    """Returns how an agent is called; raises UsageError for one that cannot be asked without a terminal here."""
    try:
        return HEADLESS[name]
    except KeyError:
        raise UsageError(
            f"{name!r} cannot be asked without a terminal: clew knows no call of it that begins a session and only"
            " reads",
            hint=f"Take one of: {', '.join(sorted(HEADLESS))}.",
        ) from None


# --- what agents write ------------------------------------------------------------------------------------


def _answered(name: str, text: str, why: str, usage: Usage, session: SessionRef | None, model: str = "") -> Answer:
    if not text.strip():
        reason = f"{name} gave no answer: {why or 'no answer in what it wrote'}"
        raise ItemFailed("provider", reason, usage=usage, session=session)
    return Answer(text, usage, model, session)


def _read_result(name: str, stdout: bytes, session_id: str) -> Answer:
    """Reads the `result` object of Claude Code, and of those that write like it."""
    told = _last_object(stdout)
    found = _string(told, "session_id") or session_id
    text = _string(told, "result")
    failed = bool(told.get("is_error")) or told.get("type") != "result"
    why = text or _string(_members(told.get("error")), "message") or _string(told, "subtype")
    usage, session = _claude_usage(told.get("usage")), SessionRef(name, found) if found else None
    return _answered(
        name, "" if failed else text, why if failed else "", usage, session, _main_model(told.get("modelUsage"))
    )


def _model(option: str, model: str) -> tuple[str, ...]:
    return (option, model) if model else ()


def _objects(data: bytes) -> list[_Members]:
    found: list[_Members] = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            members = _members(json.loads(line))
            if members:
                found.append(members)
    return found


def _last_object(data: bytes) -> _Members:
    try:
        whole: object = json.loads(data)
    except (ValueError, RecursionError):
        return (_objects(data) or [{}])[-1]
    # Some versions write the list of all messages; its last member is the result.
    return _members(cast("list[object]", whole)[-1] if isinstance(whole, list) and whole else cast("object", whole))


def _members(value: object) -> _Members:
    return cast("_Members", value) if isinstance(value, dict) else {}


def _string(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _texts(content: object) -> str:
    """Returns the texts of a message's blocks."""
    blocks = map(_members, cast("list[object]", content) if isinstance(content, list) else [])
    return "".join(_string(block, "text") for block in blocks if block.get("type") == "text")


def _count(members: Mapping[str, Any], *names: str) -> int:
    values = [members.get(name) for name in names]
    return sum(value for value in values if isinstance(value, int) and value > 0)


def _claude_usage(value: object) -> Usage:
    told = _members(value)
    read = _count(told, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(read, _count(told, "output_tokens"))


def _codex_usage(value: object) -> Usage:
    # Its cached input is part of its input.
    return Usage(_count(_members(value), "input_tokens"), _count(_members(value), "output_tokens"))


def _main_model(value: object) -> str:
    told = _members(value)
    return max(told, key=lambda name: _count(_members(told[name]), "outputTokens"), default="")
