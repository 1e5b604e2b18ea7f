"""Mistral Vibe's records in both of its layouts, as far as a conversation needs them.

The layout of 2.x keeps one message a line in `messages.jsonl`. The unified store of 3.x keeps them in chunks, each an
array named by its digest, and what came after the last checkpoint in a journal of events. What may be large stays a
slice of the file.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clew.formats.raws import NONE, OddRecords, Shape

VERSION = "3.0.3"
"""The version of the program that read back what is written here."""

STORE = "mistral.vibe.unified-session-store/v1"
STORE_MINOR = 10
"""The newest minor version of the store whose files were seen."""


class Line(msgspec.Struct, gc=False):
    """One message of the 2.x layout."""

    role: Any = None
    content: msgspec.Raw = NONE
    images: msgspec.Raw = NONE
    reasoning_content: msgspec.Raw = NONE
    tool_calls: msgspec.Raw = NONE
    tool_call_id: Any = None
    injected: Any = None
    context_boundary: Any = None
    clew: msgspec.Raw = NONE


class Function(msgspec.Struct, gc=False):
    """What a call calls: arguments are a text with JSON in it."""

    name: Any = None
    arguments: msgspec.Raw = NONE


class ToolCall(msgspec.Struct, gc=False):
    """A call of the 2.x layout."""

    id: Any = None
    function: Function | None = None


class ImageBytes(msgspec.Struct, gc=False):
    """Where the bytes of an image are: in the record, or in a file."""

    kind: Any = None
    path: Any = None
    data: msgspec.Raw = NONE


class Attachment(msgspec.Struct, gc=False):
    """An image of the 2.x layout; older files have its bytes in it without a source."""

    mime_type: Any = None
    source: ImageBytes | None = None
    path: Any = None
    data: msgspec.Raw = NONE


class StoredMessage(msgspec.Struct, gc=False):
    """The message of an item of a chunk."""

    role: Any = None
    content: msgspec.Raw = NONE
    tool_call_id: Any = None
    outcome: Any = None


class Item(msgspec.Struct, gc=False):
    """One item of a chunk of the checkpoint."""

    message: StoredMessage | None = None
    source: Any = None
    turn_index: Any = None


class PartMeta(msgspec.Struct, gc=False):
    """What programs besides Vibe keep with a part."""

    clew: msgspec.Raw = NONE


class Resource(msgspec.Struct, gc=False, rename={"mime_type": "mimeType"}):
    """A file that was attached to a message: images are kept so."""

    mime_type: Any = None
    blob: msgspec.Raw = NONE
    text: msgspec.Raw = NONE


class Part(msgspec.Struct, gc=False, rename={"meta": "_meta", "mime_type": "mimeType"}):
    """One part of a message in the unified store, or of a completion in its journal."""

    type: Any = None
    text: msgspec.Raw = NONE
    content: msgspec.Raw = NONE
    id: Any = None
    name: Any = None
    arguments: msgspec.Raw = NONE
    arguments_json: msgspec.Raw = NONE
    data: msgspec.Raw = NONE
    mime_type: Any = None
    resource: Resource | None = None
    meta: PartMeta | None = None


class Arguments(msgspec.Struct, gc=False):
    """Arguments as the model spelled them, and as they were understood."""

    raw: msgspec.Raw = NONE
    value: msgspec.Raw = NONE


class Checkpoint(msgspec.Struct, gc=False):
    """The document of a generation that holds the messages where no chunks do."""

    context: msgspec.Raw = NONE


class Context(msgspec.Struct, gc=False):
    """The messages inside a checkpoint."""

    messages: msgspec.Raw = NONE


class Event(msgspec.Struct, gc=False):
    """One line of the journal."""

    type: Any = None
    payload: msgspec.Raw = NONE


class CoreInput(msgspec.Struct, gc=False):
    """What was fed to the agent's core: the payload of the only events that say something."""

    input: msgspec.Raw = NONE


class Input(msgspec.Struct, gc=False):
    """A command with its time."""

    command: msgspec.Raw = NONE
    determinism: msgspec.Raw = NONE


class Determinism(msgspec.Struct, gc=False):
    """The time of an input."""

    time_unix_ms: Any = None


class Command(msgspec.Struct, gc=False):
    """A message of the user, the end of a completion, or the result of a tool."""

    type: Any = None
    content: msgspec.Raw = NONE
    result: msgspec.Raw = NONE
    call_id: Any = None
    error: msgspec.Raw = NONE


class Outcome(msgspec.Struct, gc=False):
    """What a completion or a tool gave."""

    parts: msgspec.Raw = NONE
    content: msgspec.Raw = NONE
    structured_content: msgspec.Raw = NONE
    type: Any = None


class Environment(msgspec.Struct, gc=False):
    """Where a session works."""

    working_directory: Any = None


class Config(msgspec.Struct, gc=False):
    """What a session was set to."""

    active_model: Any = None
    model_name: Any = None


class ImportSource(msgspec.Struct, gc=False):
    """What a unified session was imported from."""

    backend: Any = None
    session_id: Any = None


class Provenance(msgspec.Struct, gc=False):
    """That a unified session was imported, and from what."""

    source: ImportSource | None = None


class Meta(msgspec.Struct, gc=False):
    """`meta.json` of either layout."""

    session_id: Any = None
    parent_session_id: Any = None
    start_time: Any = None
    end_time: Any = None
    title: Any = None
    model: Any = None
    environment: Environment | None = None
    config: Config | None = None


class Runtime(msgspec.Struct, gc=False):
    """`runtime-state.json` of a generation."""

    import_provenance: Provenance | None = None


class Current(msgspec.Struct, gc=False):
    """`CURRENT`: which generation counts."""

    generation: Any = None
    store_format: Any = None
    store_format_minor: Any = None
    snapshot_sequence: Any = None


class StoredFile(msgspec.Struct, gc=False):
    """A document of a generation and its chunks."""

    chunks: Any = None


class JournalSegment(msgspec.Struct, gc=False):
    """The journal that goes on from a generation."""

    path: Any = None


class Manifest(msgspec.Struct, gc=False):
    """`manifest.json` of a generation."""

    checkpoint: StoredFile | None = None
    execution_state: Any = None
    recovery_journal_segment: JournalSegment | None = None


LINES = msgspec.json.Decoder(Line)
ODD_LINES = OddRecords(Line, frozenset({"content", "images", "reasoning_content", "tool_calls", "clew"}), {})
EVENTS = msgspec.json.Decoder(Event)
CALLS = Shape(ToolCall, list[ToolCall])
IMAGES = Shape(Attachment, list[Attachment])
ITEMS = Shape(Item, list[Item])
PARTS = Shape(Part, list[Part])
ARGUMENTS = Shape(Arguments, list[Arguments])
CHECKPOINTS = Shape(Checkpoint, list[Checkpoint])
CONTEXTS = Shape(Context, list[Context])
CORE_INPUTS = Shape(CoreInput, list[CoreInput])
INPUTS = Shape(Input, list[Input])
TIMES = Shape(Determinism, list[Determinism])
COMMANDS = Shape(Command, list[Command])
OUTCOMES = Shape(Outcome, list[Outcome])
METAS = Shape(Meta, list[Meta])
RUNTIMES = Shape(Runtime, list[Runtime])
CURRENTS = Shape(Current, list[Current])
MANIFESTS = Shape(Manifest, list[Manifest])
