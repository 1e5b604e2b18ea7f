"""What OpenHands keeps of a conversation, as far as it is needed: one event a file, and the state beside them.

What may be large stays a slice of the file. An event is told by its `kind`; the agent refuses members that it does not
know in an event itself, and passes over those in a message and in a call.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.formats.outline import RecordMark
from clew.formats.raws import NONE, OddRecords, Shape

VERSION = "1.16.0"
"""The version of the program that read back what is written here."""

NO_MODEL = "unknown"
"""The name of the model in a state that is written without one: the agent wants a name, and takes its own anyway."""

SYSTEM, MESSAGE, ACTION = "SystemPromptEvent", "MessageEvent", "ActionEvent"
OBSERVATION, FAILURE, REJECTION = "ObservationEvent", "AgentErrorEvent", "UserRejectObservation"
CONDENSATION, SUMMARY = "Condensation", "CondensationSummaryEvent"

ANSWERS = frozenset({OBSERVATION, FAILURE, REJECTION})
SENT = frozenset({SYSTEM, MESSAGE, ACTION, SUMMARY}) | ANSWERS
"""The kinds of events that a model is sent; places in a condensation count them."""

TERMINAL, TASK, FREE = "TerminalObservation", "TaskObservation", "MCPToolObservation"
"""Kinds of observations: two with texts of their own, and the one that says what any tool said."""


class ActionMark(RecordMark, frozen=True, omit_defaults=True):
    """The mark in a call. `answered` tells that its result was written behind it."""

    answered: bool = False


class Event(msgspec.Struct, gc=False):
    """One event of any kind."""

    kind: Any = None
    id: Any = None
    timestamp: Any = None
    source: Any = None
    llm_message: msgspec.Raw = NONE
    thought: msgspec.Raw = NONE
    reasoning_content: msgspec.Raw = NONE
    thinking_blocks: msgspec.Raw = NONE
    tool_call: msgspec.Raw = NONE
    tool_call_id: Any = None
    llm_response_id: Any = None
    observation: msgspec.Raw = NONE
    error: msgspec.Raw = NONE
    rejection_reason: msgspec.Raw = NONE
    summary: msgspec.Raw = NONE
    summary_offset: Any = None
    forgotten_event_ids: msgspec.Raw = NONE


class Message(msgspec.Struct, gc=False):
    """A message as a model is sent it."""

    role: Any = None
    content: msgspec.Raw = NONE
    reasoning_content: msgspec.Raw = NONE
    thinking_blocks: msgspec.Raw = NONE
    clew: msgspec.Raw = NONE


class ToolCall(msgspec.Struct, gc=False):
    """A call as the model made it: arguments are a text with JSON in it."""

    id: Any = None
    name: Any = None
    arguments: msgspec.Raw = NONE
    clew: msgspec.Raw = NONE


class Part(msgspec.Struct, gc=False):
    """One part of a content: a text, or addresses of images (mostly with their bytes in them)."""

    type: Any = None
    text: msgspec.Raw = NONE
    image_urls: msgspec.Raw = NONE


class Thinking(msgspec.Struct, gc=False):
    """One block of thinking."""

    thinking: msgspec.Raw = NONE


class Shell(msgspec.Struct, gc=False):
    """What a command left besides its output."""

    exit_code: Any = None
    working_dir: Any = None
    py_interpreter_path: Any = None
    prefix: Any = None
    suffix: Any = None


class Observation(msgspec.Struct, gc=False):
    """What a tool gave."""

    kind: Any = None
    content: msgspec.Raw = NONE
    is_error: Any = None
    metadata: msgspec.Raw = NONE
    task_id: Any = None
    subagent: Any = None
    status: Any = None
    screenshot_data: msgspec.Raw = NONE


class Model(msgspec.Struct, gc=False):
    """Which model an agent asks."""

    model: Any = None


class Agent(msgspec.Struct, gc=False):
    """How the agent of a conversation was set up."""

    llm: Model | None = None


class Workspace(msgspec.Struct, gc=False):
    """Where a conversation works."""

    working_dir: Any = None


class State(msgspec.Struct, gc=False):
    """`base_state.json`: everything of a conversation but its events."""

    id: Any = None
    agent: Agent | None = None
    workspace: Workspace | None = None
    persistence_dir: Any = None
    tags: Any = None


ACTION_MARKS = msgspec.json.Decoder(ActionMark).decode
EVENTS = msgspec.json.Decoder(Event)
_RAW = frozenset(
    {
        "llm_message",
        "thought",
        "reasoning_content",
        "thinking_blocks",
        "tool_call",
        "observation",
        "error",
        "rejection_reason",
        "summary",
        "forgotten_event_ids",
    }
)
ODD_EVENTS = OddRecords(Event, _RAW, {})
MESSAGES = Shape(Message, list[Message])
TOOL_CALLS = Shape(ToolCall, list[ToolCall])
PARTS = Shape(Part, list[Part])
THOUGHTS = Shape(Thinking, list[Thinking])
SHELLS = Shape(Shell, list[Shell])
OBSERVATIONS = Shape(Observation, list[Observation])
STATES = Shape(State, list[State])
