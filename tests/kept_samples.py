"""Tiny sessions of the agents that are read and kept but not written: made by hand, in our own words.

Each sample is a file below a home with what was said in it, and the facts that its reader tells.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CLAW", "KIRO", "SAMPLES", "Sample"]


@dataclass(frozen=True)
class Sample:
    """One file: `said` is (role, text, names of calls) of each message; `facts` are fields of the session."""

    agent: str
    name: str
    path: str
    data: bytes
    said: tuple[tuple[str, str, tuple[str, ...]], ...]
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.agent}-{self.name}"


def _lines(*values: object) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def _document(value: object, indent: int | None = 1) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode()


AIDER = """
# aider chat started at 2026-02-03 04:05:06

> Aider v0.86.2··
> Model: lab/small with whole edit format··

#### Name a colour.··
#### Any will do.··

# Colours

Green – or grün.

> Tokens: 10 sent, 2 received.··

# aider chat started at 2026-02-03 05:00:00

#### Another?··

Blue.
""".replace("··", "  ")

MINI = {
    "info": {
        "mini_version": "2.4.6",
        "config": {
            "agent": {"instance_template": "Solve this: {{task}}\n\nRules: be short. {{more}}"},
            "model": {"model_name": "lab/small"},
        },
    },
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Solve this: Count to two.\n\nRules: be short. x"},
        {
            "role": "assistant",
            "content": "I count.",
            "reasoning_content": "Easy.",
            "tool_calls": [
                {"id": "k1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "seq 2"}'}}
            ],
            "extra": {"timestamp": 1790000000.5, "response": {"model": "small-1"}},
        },
        {"role": "tool", "tool_call_id": "k1", "content": '{"returncode": 0, "output": "1\\n2\\n"}', "extra": {}},
        {"role": "user", "content": "Call a tool, please."},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}

AMP = {
    "id": "T-01234567-89ab-4cde-8f01-23456789abcd",
    "created": 1790000000000,
    "title": "Counting",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Count."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "One, two."},
                {"type": "text", "text": "I do."},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"cmd": "seq 2"}},
            ],
            "usage": {"model": "m-amp", "timestamp": "2026-02-03T04:05:06Z"},
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1\n2"}]},
    ],
    "meta": {"traces": [{"endTime": "2026-02-03T04:06:00Z"}]},
}

CURSOR = (
    {
        "role": "user",
        "message": {
            "content": [{"type": "text", "text": "<open_files>x</open_files>\n<user_query>\nHi\n</user_query>"}]
        },
    },
    {
        "role": "assistant",
        "message": {
            "content": [
                {"type": "text", "text": "Hello."},
                {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a"}},
            ]
        },
    },
)


def _event(sort: str, data: object) -> dict[str, object]:
    return {"type": sort, "data": data, "id": sort, "timestamp": "2026-02-03T04:05:06.000Z", "parentId": None}


COPILOT = (
    _event("session.start", {"sessionId": "s-1", "version": 1, "producer": "copilot-agent", "context": {"cwd": "/w"}}),
    _event("system.message", {"role": "system", "content": "You help."}),
    _event("user.message", {"content": "Count.", "transformedContent": "<now/>Count.", "attachments": []}),
    _event(
        "assistant.message",
        {
            "messageId": "m1",
            "model": "m-cop",
            "content": "I count.",
            "toolRequests": [{"toolCallId": "t", "name": "bash", "arguments": {"command": "seq 2"}}],
        },
    ),
    _event("tool.execution_complete", {"toolCallId": "t", "success": True, "result": {"content": "1\n2"}}),
    _event("assistant.message", {"messageId": "x", "parentToolCallId": "t", "content": "A helper's words."}),
    _event("system.notification", {"content": "A shell ended."}),
    _event("session.shutdown", {}),
)

CHAT = {
    "version": 3,
    "sessionId": "chat-1",
    "customTitle": "Colours",
    "creationDate": 1790000000000,
    "requests": [
        {
            "requestId": "r1",
            "message": {"text": "Name a colour.", "parts": []},
            "modelId": "m-vs",
            "timestamp": 1790000001000,
            "response": [
                {"value": "Let me look."},
                {
                    "kind": "toolInvocationSerialized",
                    "toolId": "run",
                    "toolCallId": "t",
                    "toolSpecificData": {"kind": "terminal", "commandLine": {"original": "ls"}},
                },
                {"value": {"value": " Green."}},
                {"kind": "inlineReference", "inlineReference": {}},
            ],
        }
    ],
}


def _span(name: str, conversation: str, **more: str) -> dict[str, object]:
    facts = {"gen_ai.conversation.id": conversation, "gen_ai.operation.name": name, **more}
    span = {
        "name": name,
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


TRACES = (
    _span("invoke_agent", "v-1", **{"gen_ai.request.model": "m-vs"}),
    _span(
        "execute_tool",
        "v-1",
        **{
            "gen_ai.tool.name": "get_file",
            "gen_ai.tool.call.id": "t",
            "gen_ai.tool.call.arguments": '{"path":"a"}',
            "gen_ai.tool.call.result": "text of a",
        },
    ),
    _span("execute_tool", "v-2", **{"gen_ai.tool.name": "other"}),
)

KIRO_LINES = (
    {"version": "v1", "kind": "Prompt", "data": {"content": [{"kind": "text", "data": "Count."}]}},
    {
        "version": "v1",
        "kind": "AssistantMessage",
        "data": {
            "content": [
                {"kind": "text", "data": "I count."},
                {"kind": "toolUse", "data": {"toolUseId": "t", "name": "sh", "input": {"command": "seq 2"}}},
            ]
        },
    },
    {
        "version": "v1",
        "kind": "ToolResults",
        "data": {
            "content": [
                {
                    "kind": "toolResult",
                    "data": {"toolUseId": "t", "content": [{"kind": "text", "data": "1\n2"}], "status": "success"},
                }
            ]
        },
    },
)

KIRO = {
    "conversation_id": "q-1",
    "history": [
        {
            "user": {
                "env_context": {"env_state": {"current_working_directory": "/w"}},
                "content": {"Prompt": {"prompt": "Count."}},
                "timestamp": "2026-02-03T04:05:06Z",
            },
            "assistant": {
                "ToolUse": {
                    "message_id": "m1",
                    "content": "I count.",
                    "tool_uses": [{"id": "t", "name": "sh", "args": {"command": "seq 2"}}],
                }
            },
        },
        {
            "user": {
                "content": {
                    "ToolUseResults": {
                        "tool_use_results": [{"tool_use_id": "t", "content": [{"Text": "1\n2"}], "status": "Success"}]
                    }
                }
            },
            "assistant": {"Response": {"message_id": "m2", "content": "Done."}},
        },
    ],
    "transcript": ["> Count."],
}


def _claw(sort: str, name: str, parent: str | None, **more: object) -> dict[str, object]:
    return {"type": sort, "id": name, "parentId": parent, "timestamp": "2026-02-03T04:05:06.000Z", **more}


CLAW: tuple[dict[str, object], ...] = (
    {"type": "session", "version": 4, "id": "w-1", "timestamp": "2026-02-03T04:05:06.000Z", "cwd": "/w"},
    _claw("model_change", "a", None, provider="lab", modelId="m"),
    _claw("message", "b", "a", message={"role": "user", "content": "Count.", "timestamp": 1790000000000}),
    _claw("message", "x", "b", message={"role": "assistant", "content": [{"type": "text", "text": "Taken back."}]}),
    _claw(
        "message",
        "c",
        "b",
        message={
            "role": "assistant",
            "provider": "lab",
            "model": "m",
            "content": [
                {"type": "text", "text": "I count."},
                {"type": "toolCall", "id": "t", "name": "exec", "arguments": {"command": "seq 2"}},
            ],
        },
    ),
    _claw(
        "message",
        "d",
        "c",
        message={
            "role": "toolResult",
            "toolCallId": "t",
            "content": [{"type": "text", "text": "1\n2"}],
            "isError": False,
        },
    ),
)

COUNTED = (("user", "Count.", ()), ("assistant", "I count.", ("sh",)), ("tool", "1\n2", ()))

SAMPLES = (
    Sample("kiro", "lines", ".kiro/sessions/cli/k-1.jsonl", _lines(*KIRO_LINES), COUNTED, {"id": "k-1"}),
    Sample(
        "openclaw",
        "lines",
        ".openclaw/agents/main/sessions/w-1.jsonl",
        _lines(*CLAW),
        (("user", "Count.", ()), ("assistant", "I count.", ("exec",)), ("tool", "1\n2", ())),
        {"id": "w-1", "cwd": "/w", "model": "m", "provider": "lab"},
    ),
    Sample("kiro", "document", "", _document(KIRO), (*COUNTED, ("assistant", "Done.", ())), {"id": "q-1", "cwd": "/w"}),
    Sample(
        "aider",
        "history",
        ".aider.chat.history.md",
        AIDER.encode(),
        (
            ("user", "Name a colour.\nAny will do.", ()),
            ("assistant", "# Colours\n\nGreen – or grün.", ()),
            ("user", "Another?", ()),
            ("assistant", "Blue.", ()),
        ),
        {"version": "0.86.2", "model": "lab/small", "created_ms": 1770091506000},
    ),
    Sample(
        "mini-swe-agent",
        "run",
        ".config/mini-swe-agent/last_mini_run.traj.json",
        _document(MINI, 2),
        (
            ("user", "Count to two.", ()),
            ("assistant", "I count.", ("bash",)),
            ("tool", '{"returncode": 0, "output": "1\\n2\\n"}', ()),
            ("user", "Call a tool, please.", ()),
        ),
        {"id": "last_mini_run", "version": "2.4.6", "model": "small-1"},
    ),
    Sample(
        "amp",
        "thread",
        ".local/share/amp/threads/T-01234567-89ab-4cde-8f01-23456789abcd.json",
        _document(AMP),
        (("user", "Count.", ()), ("assistant", "I do.", ("Bash",)), ("tool", "1\n2", ())),
        {"id": AMP["id"], "title": "Counting", "model": "m-amp", "created_ms": 1790000000000},
    ),
    Sample(
        "cursor",
        "transcript",
        ".cursor/projects/home-x/agent-transcripts/c-1.jsonl",
        _lines(*CURSOR),
        (("user", "Hi", ()), ("assistant", "Hello.", ("Read",))),
        {"id": "c-1"},
    ),
    Sample(
        "copilot",
        "events",
        ".copilot/session-state/s-1/events.jsonl",
        _lines(*COPILOT),
        (
            ("user", "Count.", ()),
            ("assistant", "I count.", ("bash",)),
            ("tool", "1\n2", ()),
            ("user", "A shell ended.", ()),
        ),
        {"id": "s-1", "cwd": "/w", "model": "m-cop"},
    ),
    Sample(
        "copilot",
        "chat",
        ".config/Code/User/workspaceStorage/ab/chatSessions/chat-1.json",
        _document(CHAT),
        (("user", "Name a colour.", ()), ("assistant", "Let me look. Green.", ("run",))),
        {"id": "chat-1", "title": "Colours", "model": "m-vs"},
    ),
    Sample(
        "copilot",
        "traces",
        "",
        _lines(*TRACES),
        (("assistant", "", ("get_file",)), ("tool", "text of a", ())),
        {"id": "v-1", "model": "m-vs"},
    ),
)
