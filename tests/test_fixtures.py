"""The fixtures are what they claim: ours in every text, whole, small, and spelled as the agents spell."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents.lab.conversations import LONG_LINE, ODD_TEXT
from agents.lab.packed import decompress
from agents.lab.scrub import clean_text, dump
from clew_corpus import FIXTURES, Case, own_cases

CASES = own_cases()

OURS = re.compile(
    "|".join(
        [
            re.escape(LONG_LINE),
            r"\d{4} to and fro, ",
            r"row \d+ of the long cloth\s*",
            r"Once there was a thread\. ",
            r"(?:data:image/\w+;base64,)?[A-Za-z0-9+/]{100,}=*",
            re.escape(ODD_TEXT),
        ]
    )
)
"""Our own texts that are long, and our pictures."""

VENDOR_PHRASES = (
    "deferred tools",
    "knowledge cutoff",
    "marketing name",
    "sandboxing defines",
    "Another language model",
    "ran out of context",
    "Executes a",
    "is NOT a message from",
    "permissions mode",
    "Co-Authored-By",
    "You have been invoked",
    "You are Codex",
    "You are a Claude",
    "You are Grok",
    "You are Kimi",
)
"""Scraps of what the agents say by themselves; none of them is a whole sentence."""

LONGEST = 400


def files(case: Case) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(case.home.rglob("*")):
        if path.suffix == ".db":
            yield path, b"".join(rows(path))
        elif path.is_file():
            data = path.read_bytes()
            yield path, decompress(data) if path.suffix == ".zst" else data


def rows(path: Path) -> Iterator[bytes]:
    """Yields every row of a database as a line of JSON; what is itself JSON stands in it as such."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f"SELECT * FROM {table}"):
                values = [json.loads(one) if isinstance(one, str) and one[:1] in ("{", "[") else one for one in row]
                yield dump([table, *values]) + b"\n"


def records(case: Case) -> Iterator[Any]:
    for path, data in files(case):
        if ".jsonl" in path.name or path.suffix == ".db":
            yield from (json.loads(line) for line in data.split(b"\n") if line)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_long_text_is_ours(case: Case) -> None:
    for text in strings([case.data, list(records(case))]):
        rest = OURS.sub("", text)
        assert len(rest) <= LONGEST, rest[:200]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_of_the_vendors_or_of_a_machine_is_left(case: Case) -> None:
    everything = b"".join(data for _, data in files(case)).decode("utf-8") + json.dumps(case.data)
    for phrase in VENDOR_PHRASES:
        assert phrase not in everything
    found = set(re.findall(r"(?<![\w.~:/<-])/(?:root|work|tmp|var|mnt|Users)\b[^\"\\ ]*", everything))
    assert found == set()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_records_are_spelled_as_the_agents_spell_them(case: Case) -> None:
    seen = 0
    for path, data in files(case):
        if ".jsonl" in path.name:
            assert not data or data.endswith(b"\n"), path
            for line in data.split(b"\n")[:-1]:
                assert dump(json.loads(line)) == line
                seen += 1
    assert seen > 3 or case.agent in ("cline", "hermes", "opencode", "openhands", "vibe")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_case_names_a_session_that_is_there(case: Case) -> None:
    assert case.paths
    assert case.expected
    assert case.cwd
    assert case.cwd.startswith("/home/dev1/proj/")
    for message in case.expected:
        known = {call["id"] for call in message["tool_calls"]}
        assert {result["call_id"] for result in message["tool_results"]} <= known


def test_a_fork_by_reference_names_the_end_of_a_record() -> None:
    forks = 0
    for case in own_cases("codex"):
        contents = dict(files(case))
        for path, data in contents.items():
            base = json.loads(data.split(b"\n", 1)[0])["payload"].get("history_base")
            if base:
                parents = [one for one in contents if base["thread_id"] in one.name and one != path]
                before = contents[parents[0]][: base["end_byte_offset"]]
                assert before.endswith(b"\n")
                last = json.loads(before.splitlines()[-1])
                assert last["ordinal"] + 1 == base["end_ordinal_exclusive"]
                forks += 1
    assert forks >= 2


def test_the_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < 3_000_000


def test_what_an_agent_writes_around_a_summary_goes() -> None:
    framed = "Before it.\n[summary] Two knots. [end of summary]\nAfter it."
    assert clean_text(framed).endswith("\n\n[summary] Two knots. [end of summary]")
    assert "After it" not in clean_text(framed)
    assert "Before it" not in clean_text(framed)
    assert clean_text("[summary] Two knots. [end of summary]") == "[summary] Two knots. [end of summary]"
    assert clean_text("No summary here.") == "No summary here."
