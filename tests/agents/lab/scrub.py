"""Replaces what an agent's vendor wrote in recorded sessions by placeholders of our own.

The structure stays: every record, id, parent, ordinal, key and the compact spelling of the JSON; a record without such
texts keeps its bytes. What goes: system prompts, tool and skill descriptions, reminders, developer messages, the
wrapping of summaries, and the name of this machine's kernel. What stays is what the conversation needs: the short
results of the agents' own tools, and notes such as the one of an interruption.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.lab.packed import compress, decompress

__all__ = ["PLACEHOLDER", "SUMMARY_END", "SUMMARY_START", "clean", "clean_text", "dump", "scrub_home"]

PLACEHOLDER = "Placeholder for a text of the agent."

SUMMARY_START, SUMMARY_END = "[summary]", "[end of summary]"
"""Our scripted summaries stand between these; what an agent puts around them is the vendor's."""

SUMMARY_LEAD = "The conversation was compacted. This is what came before."

TAGGED = re.compile(r"(<(?P<tag>[a-z][\w -]*)>\n?).*?(\n?</(?P=tag)>\s*)", re.DOTALL)

HAND_BACK = re.compile(r"(\[Subagent hand-back\]).*?(?=\n  )", re.DOTALL)
"""How Claude Code opens a helper's report: the report itself is indented."""

TOLD = (
    re.compile(r"(<system>Read image file\.).*?(?=</system>)"),
    re.compile(r"(Image overview: [^.]*\.) If .*"),
    re.compile(r"(resume_hint:).*"),
    re.compile(r"(<image_files>\n).*(?=\n1\. )"),
    re.compile(r"(\n).*(?=\n</image_files>)"),
)
"""What agents tell the model beside a picture or a helper's report."""

LONGEST = 80
"""A text of an agent's own record that is longer is taken for prose."""


def scrub_home(agent: str, home: Path) -> None:
    """Scrubs every session file under a fixture's home, in place.

    OpenCode keeps nothing of its own words in a session's rows; what Hermes keeps there goes when it is packed.
    """
    if agent in ("hermes", "opencode"):
        return
    if agent == "cline":
        _scrub_cline(home)
        return
    if agent == "openhands":
        for path in sorted(home.rglob("*.json")):
            path.write_bytes(scrub_lines(path.read_bytes(), _scrub_openhands))
        return
    scrub = {
        "claude": _scrub_claude,
        "codex": _scrub_codex,
        "droid": _scrub_droid,
        "gemini": _scrub_gemini,
        "grok": _scrub_grok,
        "kimi": _scrub_kimi,
        "pi": _scrub_pi,
        "qwen": clean,
        "vibe": clean,
    }[agent]
    for path in sorted(home.rglob("*.jsonl*")):
        data = path.read_bytes()
        if path.suffix == ".zst":
            path.write_bytes(compress(scrub_lines(decompress(data), scrub)))
        else:
            path.write_bytes(scrub_lines(data, scrub))
    if agent == "codex":
        _mend_offsets(home)


def scrub_lines(data: bytes, scrub: Callable[[Any], Any]) -> bytes:
    """Scrubs lines of JSON; a line that is none (a torn tail), or that needs nothing, keeps its bytes."""
    out: list[bytes] = []
    for line in data.splitlines(keepends=True) if b"\r" not in data else _lines(data):
        body = line.rstrip(b"\n")
        try:
            record = json.loads(body)
        except ValueError:
            out.append(line)
            continue
        changed = scrub(json.loads(body))
        if changed != record:
            if dump(record) != body:
                raise AssertionError(f"the spelling of this record would change: {body[:200]!r}")
            line = dump(changed) + line[len(body) :]
        out.append(line)
    return b"".join(out)


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + [data.rpartition(b"\n")[2]]


def dump(record: Any) -> bytes:
    """Spells JSON as both agents do: compact, only what must be is escaped, lone surrogates are."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def clean(value: Any) -> Any:
    """Cleans every text of a conversation."""
    return _walk(value, lambda _, text: clean_text(text))


def clean_text(text: str) -> str:
    """Takes out of a text of the conversation what the agent wrote around ours."""
    start, end = text.find(SUMMARY_START), text.rfind(SUMMARY_END)
    if 0 <= start < end:
        ours = text[start : end + len(SUMMARY_END)]
        text = ours if text == ours else f"{SUMMARY_LEAD}\n\n{ours}"
    if text.startswith("<local-command-caveat>"):
        text = _placeholder(text)
    for told in TOLD:
        text = told.sub(lambda found: found[1] + ("" if found[1].endswith("\n") else " ") + PLACEHOLDER, text)
    return HAND_BACK.sub(r"\1 " + PLACEHOLDER, text)


def _placeholder(text: str) -> str:
    found = TAGGED.fullmatch(text)
    return f"{found[1]}{PLACEHOLDER}{found[3]}" if found else PLACEHOLDER


def _walk(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    """Changes every string of a value; `change` gets the key it stands under and the string."""
    if isinstance(value, dict):
        return {name: _walk(one, change, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_walk(one, change, key) for one in value]
    return change(key, value) if isinstance(value, str) else value


def _prose(key: str, text: str) -> str:
    if key == "osVersion":
        return "Linux 6.1.0"
    if key in ("description", "systemPrompt", "cliPrefix", "commit", "pr") or len(text) > LONGEST or "\n" in text:
        return _placeholder(text)
    return text


def _scrub_claude(record: Any) -> Any:
    kind = record.get("type")
    if kind == "attachment":
        _scrub_attachment(record)
    elif kind == "api-request-shape":
        record["shape"] = _walk(record["shape"], _prose_everywhere)
    elif kind == "api-request-blob":
        _scrub_blob(record["message"])
    return clean(record)


def _scrub_blob(message: Any) -> None:
    if isinstance(message["content"], str):
        if message["role"] == "system":
            message["content"] = _placeholder(message["content"])
        return
    for block in message["content"]:
        is_theirs = message["role"] == "system" or "<system-reminder>" in block.get("text", "")
        if block.get("type") == "text" and is_theirs:
            block["text"] = _placeholder(block["text"])


def _prose_everywhere(key: str, text: str) -> str:
    return _placeholder(text) if key == "text" else _prose(key, text)


def _scrub_attachment(record: Any) -> None:
    attachment = record["attachment"]
    kept = attachment.get("type") in ("file", "queued_command")  # these hold a file or a prompt of ours
    if not kept:
        record["attachment"] = _walk(attachment, _prose_everywhere)
        for part in record.get("rendered") or []:
            if isinstance(part.get("content"), str):
                part["content"] = _placeholder(part["content"])


def _scrub_codex(record: Any) -> Any:
    payload = record.get("payload") or {}
    kind = record.get("type")
    if kind == "session_meta" and payload.get("base_instructions"):
        payload["base_instructions"]["text"] = PLACEHOLDER
    elif kind == "response_item":
        _scrub_item(payload)
    elif kind == "compacted":
        for item in payload.get("replacement_history") or []:
            _scrub_item(item)
    elif kind in ("turn_context", "world_state"):
        record["payload"] = _walk(payload, _instructions)
    return clean(record)


def _scrub_grok(record: Any) -> Any:
    if record.get("type") == "system":
        record["content"] = PLACEHOLDER
    elif record.get("type") == "user":
        for part in record["content"]:
            text = part.get("text", "")
            if text.startswith("<user_info>"):
                part["text"] = f"<user_info>\n{PLACEHOLDER}\n</user_info>\n\n<rules>\n{PLACEHOLDER}\n</rules>"
            elif text.startswith("<system-reminder>"):
                part["text"] = _placeholder(text)
    return clean(record)


def _scrub_kimi(record: Any) -> Any:
    kind = record.get("type")
    if kind == "profile.bind":
        record["systemPrompt"] = PLACEHOLDER
    elif kind == "llm.tools_snapshot":
        record["tools"] = []
    elif kind == "context.append_message" and record["message"].get("origin", {}).get("kind") == "injection":
        for part in record["message"]["content"]:
            part["text"] = _placeholder(part["text"])
    return clean(record)


def _scrub_gemini(record: Any) -> Any:
    def change(key: str, text: str) -> str:
        if text.startswith("<session_context>"):
            folders = re.search(r"- \*\*Workspace Directories:\*\*\n  - .*\n", text)
            return f"<session_context>\n{PLACEHOLDER}\n{folders[0] if folders else ''}</session_context>"
        if key in ("description", "displayName") and len(text) > LONGEST:
            return PLACEHOLDER
        return clean_text(text)

    return _walk(record, change)


def _scrub_pi(record: Any) -> Any:
    for message in (record.get("message"), record.get("systemMessage")):
        if isinstance(message, dict) and message.get("role") == "system":
            message["sections"] = dict.fromkeys(message.get("sections") or {}, PLACEHOLDER)
            message["toolsAdded"] = _walk(message.get("toolsAdded") or [], _prose)
    if record.get("type") == "compaction":
        record["summary"] = clean_text(record["summary"])
    return clean(record)


def _scrub_droid(record: Any) -> Any:
    for block in (record.get("message") or {}).get("content") or []:
        if block.get("type") == "text" and block["text"].startswith("<system-reminder>"):
            block["text"] = _placeholder(block["text"])
    return clean(record)


def _scrub_cline(home: Path) -> None:
    """Scrubs the documents of messages: the agent's own prompt stands in their tail."""
    for path in sorted(home.rglob("*.messages.json")):
        root = clean(json.loads(path.read_bytes()))
        if "system_prompt" in root:
            root["system_prompt"] = PLACEHOLDER
        path.write_bytes(json.dumps(root, indent=2, ensure_ascii=False).encode())


def _scrub_openhands(record: Any) -> Any:
    if record.get("kind") == "SystemPromptEvent":
        record["system_prompt"]["text"] = PLACEHOLDER
        record["tools"] = _walk(record["tools"], _prose)
        if "dynamic_context" in record:
            record["dynamic_context"]["text"] = PLACEHOLDER
    elif record.get("kind") == "ObservationEvent":
        shell = record["observation"].get("metadata") or {}
        shell |= {name: "dev1" for name in ("username", "hostname") if name in shell}
    elif isinstance(record.get("agent"), dict):
        context = record["agent"].get("agent_context") or {}
        context |= {"system_message_suffix": PLACEHOLDER, "skills": []}
    return clean(record)


def _instructions(key: str, text: str) -> str:
    # The short ones are digests, by which Codex knows what it need not say again.
    return PLACEHOLDER if key.endswith("instructions") and len(text) > LONGEST else text


def _scrub_item(item: Any) -> None:
    if item.get("type") == "message":
        for part in item.get("content") or []:
            text = part.get("text") or ""
            if item.get("role") in ("developer", "system") or text.startswith("<turn_aborted>"):
                part["text"] = _placeholder(text)
    elif item.get("type") == "additional_tools":
        item["tools"] = _walk(item.get("tools"), _prose)


def _mend_offsets(home: Path) -> None:
    """Sets right the byte offsets by which a fork names a place in its parent's file, which has become shorter."""
    paths = sorted(home.rglob("rollout-*.jsonl"))
    for path in paths:
        first, _, rest = path.read_bytes().partition(b"\n")
        record = json.loads(first)
        base = record["payload"].get("history_base")
        if not base:
            continue
        parents = [one for one in paths if base["thread_id"] in one.name and one != path]
        base["end_byte_offset"] = _offset(parents[0], base["end_ordinal_exclusive"])
        path.write_bytes(dump(record) + b"\n" + rest)


def _offset(path: Path, ordinal: int) -> int:
    at = 0
    for line in path.read_bytes().splitlines(keepends=True):
        if json.loads(line)["ordinal"] >= ordinal:
            break
        at += len(line)
    return at
