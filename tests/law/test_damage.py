"""No bytes are too broken to be read: every registered format, its sessions cut anywhere and with bytes flipped.

Promised of each reading: it returns, it lays every byte into one record, every message has a record that there is; a
record that is no longer one is told; and what stands in the other records is still said. The daily run is a sample,
the long one (`CLEW_LAW=1`) breaks the sessions of each format more than a thousand times.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.groups import group_messages
from clew.conversation.source import Session, SideFile, Source, Stream
from clew.errors import ClewError
from clew.formats.protocol import Format, Home, WriteOptions
from clew.formats.registry import all_formats
from clew_corpus import own_cases
from kept_databases import BASES, make
from kept_samples import SAMPLES

LONG = bool(os.environ.get("CLEW_LAW"))
COUNT = 1200 if LONG else 24
FORMATS = tuple(all_formats())

every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)

TALK = (
    make_user("Good morning."),
    make_assistant("I look.", make_call("a", "sh", '{"command":"ls"}'), make_call("b", "sh", "{}")),
    make_result("a", "one\ntwo"),
    make_result("b", "three"),
    make_assistant("Two files."),
    make_user("Thanks."),
    make_assistant("You are welcome."),
)


@pytest.fixture(scope="module", autouse=True)
def places() -> Iterator[None]:
    """Removes what the samples were made in."""
    yield
    for folder in MADE:
        shutil.rmtree(folder)
    MADE.clear()
    sources.cache_clear()


MADE: list[Path] = []


@cache
def sources(form: Format) -> tuple[Source, ...]:
    """Returns sessions of a format: recorded ones, those made by hand, and where there are none one that clew wrote."""
    homes = [case.home for case in own_cases(form.name)]
    found = [source for home in homes for source in _found(form, home)]
    for sample in SAMPLES:
        if sample.agent == form.name and sample.path:
            path = _folder() / sample.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sample.data)
            found += _found(form, MADE[-1])
    for base in BASES:
        if base.agent == form.name:
            make(base, _folder())
            found += _found(form, MADE[-1])
    return tuple(found) or (_written(form),)


def _folder() -> Path:
    MADE.append(Path(mkdtemp(prefix="clew-damage-")))
    return MADE[-1]


def _found(form: Format, root: Path) -> list[Source]:
    home = Home(root)
    return [_in_memory(form.locate.load(one, home)) for one in form.locate.find(home) if not one.problem]


def _in_memory(source: Source) -> Source:
    """Returns a source that needs no files, and no other sessions."""
    streams = tuple(Stream(s.path, bytes(s.data), s.mode) for s in source.streams)
    side = tuple(_held(f.path, f.mode, bytes(f.load())) for f in source.side)
    return msgspec.structs.replace(source, streams=streams, side=side, resolve=None)


def _held(path: str, mode: int, data: bytes) -> SideFile:
    return SideFile(path, mode, len(data), lambda: data)


def _written(form: Format) -> Source:
    assert form.write is not None, f"there is no session of {form.name} to break"
    name = "00000000-0000-8000-8000-000000000001"
    options = WriteOptions(form.make_id(name) if form.make_id else name, "/home/dev1", 1_790_000_000_000, str)
    files = [(file, b"".join(bytes(c) for c in file.chunks())) for file in form.write(TALK, options).files]
    streams = tuple(Stream(file.path, data) for file, data in files if file.role == "stream")
    side = tuple(_held(file.path, file.mode, data) for file, data in files if file.role != "stream")
    return Source(streams, side)


def check(form: Format, source: Source) -> Session:
    """Reads a source, and checks what is true of every reading."""
    session = form.read(source)
    records = session.records
    whole = b"".join(bytes(stream.data) for stream in records.streams)
    assert b"".join(bytes(records[number]) for number in range(len(records))) == whole
    assert len(session.created_by) == len(session.messages)
    assert all(0 <= record < len(records) for record in session.created_by if record is not None)
    for messages in (session.messages, session.history, *(branch.messages for branch in session.branches)):
        for group in group_messages(messages):
            assert all(message.text is not None for message in (group.head, *group.results))
    return session


@every_format
def test_no_bytes_make_a_reading_fail(form: Format) -> None:
    chance = random.Random(f"damage of {form.name}")
    found = sources(form)
    for number in range(COUNT):
        check(form, broken(chance, found[number % len(found)]))


def broken(chance: random.Random, source: Source) -> Source:
    """Returns a source of which one stream, or one side file, is cut, filled up or has other bytes."""
    if source.side and chance.random() < 0.2:
        at = chance.randrange(len(source.side))
        side = list(source.side)
        side[at] = _held(side[at].path, side[at].mode, spoil(chance, bytes(side[at].load())))
        return msgspec.structs.replace(source, side=tuple(side))
    at = chance.randrange(len(source.streams))
    streams = list(source.streams)
    streams[at] = Stream(streams[at].path, spoil(chance, bytes(streams[at].data)))
    return msgspec.structs.replace(source, streams=tuple(streams))


def spoil(chance: random.Random, data: bytes) -> bytes:
    """Returns bytes that are cut at a random place, or of which some are others."""
    found = bytearray(data)
    way = chance.random()
    if way < 0.4:
        del found[chance.randrange(len(found) + 1) :]
    elif way < 0.5:
        at = chance.randrange(len(found) + 1)
        found[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
    elif way < 0.6:
        at = chance.randrange(len(found) + 1)
        del found[at : at + chance.randrange(200)]
    for _ in range(chance.randrange(1, 6) if found and way >= 0.4 else 0):
        at = chance.randrange(len(found))
        found[at] = chance.choice(SIGNS) if chance.random() < 0.5 else found[at] ^ (1 << chance.randrange(8))
    return bytes(found)


SIGNS = b'"\\{}[],:\n\r\x00\xff0-eE/'
"""Bytes that matter to a reader of JSON more than others do."""


LINES = [form for form in FORMATS if form.traits.record_kind in ("line", "row")]


@pytest.mark.parametrize("form", LINES, ids=lambda form: form.name)
def test_a_broken_record_is_told_and_the_others_are_still_said(form: Format) -> None:
    chance = random.Random(f"one record of {form.name}")
    told = tried = kept = said = 0
    for source in sources(form):
        whole = form.read(source)
        numbers = range(1, len(whole.records))
        for number in numbers if LONG else chance.sample(numbers, min(4, len(numbers))):
            after = check(form, without(source, whole, number))
            texts = {m.text for m in (*after.messages, *after.history)}
            others = [m.text for m, record in zip(whole.messages, whole.created_by, strict=True) if record != number]
            tried += 1
            told += len(after.damage) > len(whole.damage)
            said += len(others)
            kept += sum(text in texts for text in others)
    print(f"{form.name}: {tried} records broken, {told} told; {kept} of {said} other messages still said")
    assert told == tried
    assert kept >= 0.7 * said  # a reply may have to go with its prompt, or a result with its call


def without(source: Source, whole: Session, number: int) -> Source:
    """Returns a source in which one record is no record any more."""
    stream, start, end = whole.records.place(number)
    at = next(n for n, one in enumerate(source.streams) if one.path == stream.path)
    data = bytes(source.streams[at].data)
    body = end - 1 if data[start:end].endswith((b"\n", b",")) else end
    body = body - 1 if data[start:end].endswith(b"]\n") else body
    streams = list(source.streams)
    streams[at] = Stream(stream.path, data[:start] + b"#" * (body - start) + data[body:])
    return msgspec.structs.replace(source, streams=tuple(streams))


ROWS = [form for form in FORMATS if form.traits.record_kind == "row"]


@pytest.mark.parametrize("form", ROWS, ids=lambda form: form.name)
def test_a_broken_database_is_refused_or_read(form: Format, tmp_path: Path) -> None:
    chance = random.Random(f"database of {form.name}")
    for number, root in enumerate(_homes(form, tmp_path)):
        for path in sorted(one for one in root.rglob("*") if one.suffix in (".db", ".sqlite3", ".sqlite")):
            good = path.read_bytes()
            for _ in range(COUNT // 4):
                path.write_bytes(spoil(chance, good))
                _read_all(form, root)
            path.write_bytes(good)
        if number > 2 and not LONG:
            break


def _homes(form: Format, folder: Path) -> Iterator[Path]:
    for case in own_cases(form.name):
        yield case.copy_home(folder / case.name)
    for number, base in enumerate(BASES):
        if base.agent == form.name:
            make(base, folder / str(number))
            yield folder / str(number)


def _read_all(form: Format, root: Path) -> None:
    home = Home(root)
    for found in form.locate.find(home):
        if not found.problem:
            with suppress(ClewError):  # a refusal that says why
                check(form, form.locate.load(found, home))
