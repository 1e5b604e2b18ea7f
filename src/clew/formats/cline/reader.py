"""Reads Cline's sessions: the document of messages of the command line, and the list of a VS Code task.

Promised: every byte falls in exactly one record; whatever is in the file, a session comes out and what was odd is
reported. A compaction lies in a file of its own beside the messages, which are all kept: it says what the model gets
in place of the first ones. The agent compares a hash of those; here their number and the last one's id are compared.
"""

from __future__ import annotations

import msgspec

from clew.conversation.model import Message
from clew.conversation.normal import Normal
from clew.conversation.source import Ending, Reference, Session, SideFile, Source, Stream
from clew.formats import unmark
from clew.formats.cline.content import SUMMARY, Content, mark_in
from clew.formats.cline.folder import COMPACTION, MANIFEST, MESSAGES, is_task
from clew.formats.described import damaged_descriptions
from clew.formats.loose import NONE, Members, items_of, members_of, raw_of, scalar_in, word_in
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "cline"
LAYOUT = 1
LIST = "messages"
_TITLE_SIGNS = 120


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a session whole: a document that is rewritten in one piece has no settled beginning."""
    sketch = Sketch(AGENT, source)
    renamed: dict[str, str] = {}
    for number, stream in enumerate(source.streams):
        if number:
            sketch.whole(stream)
        else:
            _read_stream(sketch, stream, renamed)
    session = sketch.finish()
    if not renamed:
        return session
    messages = _with_originals(session.messages, renamed)
    history = messages if session.history is session.messages else _with_originals(session.history, renamed)
    return msgspec.structs.replace(session, messages=messages, history=history)


def _with_originals(messages: tuple[Message, ...], renamed: dict[str, str]) -> tuple[Message, ...]:
    return unmark.with_originals(Normal(messages, (None,) * len(messages)), renamed).messages


def _read_stream(sketch: Sketch, stream: Stream, renamed: dict[str, str]) -> None:
    old = is_task(stream)
    content = Content(renamed, sketch.skipped, is_task=old)
    side = "" if old else stream.path.removesuffix(MESSAGES)
    manifest = side_members(sketch.source.side, side + MANIFEST) if side else {}
    cut = _Cut(side_members(sketch.source.side, side + COMPACTION)) if side else _Cut({})
    last, count = "", 0
    for record, members in sketch.document(stream, "" if old else LIST):
        if cut.holds(count, last):
            cut.make(sketch, content, record - 1)
        last, count = word_in(members.get("id", NONE)), count + 1
        _read_message(sketch, content, members, record)
    if cut.holds(count, last):
        cut.make(sketch, content, count)
    sketch.damage += damaged_descriptions(sketch.source.side, (side + MANIFEST,) if side else ())
    facts = sketch.frame.members(bytes(stream.data)) if sketch.frame is not None else {}
    _read_facts(sketch, facts, manifest, stream)


def _read_message(sketch: Sketch, content: Content, members: Members, record: int) -> None:
    if not sketch.about.foreign:
        mark = mark_in(members)
        sketch.about.foreign = mark.from_ if mark is not None else ""
    provider = word_in(members_of(members.get("modelInfo", NONE)).get("provider", NONE))
    sketch.about.provider = provider or sketch.about.provider
    said = content.messages(members)
    for message in said:
        sketch.say(message, record)
    if not said and word_in(members.get("role", NONE)) not in ("user", "assistant"):
        sketch.report(record, "foreign record", "a message of an unknown role")


class _Cut:
    """What a compaction puts in place of the first messages of a session, and how many those are."""

    def __init__(self, state: Members) -> None:
        count = scalar_in(state.get("source_message_count", NONE))
        self.count = count if isinstance(count, int) and not isinstance(count, bool) else -1
        self.key = word_in(state.get("source_last_message_key", NONE))
        self.messages = [members_of(item) for item in items_of(state.get(LIST, NONE))]

    def holds(self, count: int, last: str) -> bool:
        """Tells whether it stands for exactly so many messages, the last of which has this id."""
        if count != self.count or not count:
            return False
        return not last or not self.key.startswith("id:") or self.key == f"id:{last}"

    def make(self, sketch: Sketch, content: Content, record: int) -> None:
        """Says it; what it keeps of the messages themselves is in the full history already."""
        self.count = -1
        sketch.compact()
        for members in self.messages:
            is_new = word_in(members_of(members.get("metadata", NONE)).get("kind", NONE)) == SUMMARY
            for message in content.messages(members):
                _say(sketch, message, record, is_new=is_new)


def _say(sketch: Sketch, message: Message, record: int, *, is_new: bool) -> None:
    if is_new:
        sketch.say(message, record)
    else:
        sketch.builder.add(message, record)


def _read_facts(sketch: Sketch, facts: Members, manifest: Members, stream: Stream) -> None:
    about, metadata = sketch.about, members_of(manifest.get("metadata", NONE))
    about.id = word_in(facts.get("sessionId", NONE)) or word_in(manifest.get("session_id", NONE))
    about.cwd = word_in(manifest.get("cwd", NONE))
    prompt = word_in(manifest.get("prompt", NONE))
    title = word_in(metadata.get("title", NONE))
    about.title = "" if title == derived_title(prompt) else title
    about.model = word_in(manifest.get("model", NONE))
    about.provider = about.provider or word_in(manifest.get("provider", NONE))
    about.version = word_in(members_of(facts.get("origin", NONE)).get("version", NONE))
    started = read_time(scalar_in(manifest.get("started_at", NONE)))
    if started is not None and not sketch.builder.finish().messages:
        about.created_ms = about.updated_ms = started
    about.helper = word_in(facts.get("agent", NONE)) in ("subagent", "teammate")
    folder = stream.path.rpartition("/")[0].rpartition("/")[2]
    if about.helper and folder:
        about.references = (Reference("helper_of", folder),)
    version = scalar_in(facts.get("version", NONE))
    if isinstance(version, int) and version > LAYOUT:
        sketch.report(0, "newer layout", f"version {version} is read as version {LAYOUT}")


def derived_title(prompt: str) -> str:
    """Returns the title that the agent itself makes of a prompt."""
    line = prompt.strip().partition("\n")[0].strip()
    return line[:_TITLE_SIGNS]


def side_members(side: tuple[SideFile, ...], path: str) -> Members:
    """Returns the members of a JSON object in a side file; none where there is none or it is damaged."""
    for file in side:
        if file.path == path:
            try:
                return members_of(raw_of(bytes(file.load())))
            except OSError:
                return {}
    return {}
