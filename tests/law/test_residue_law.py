"""The laws of clew (`clew.laws.suite`) over every format that is here; and what they say of keys alone.

10  sensitivity       test_a_change_shows_from_its_group_on, test_what_is_residue_changes_no_key
11  order             test_the_order_of_calls_counts
12  determinism       test_keys_do_not_depend_on_the_process
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from carrying import formats_to_test, pairs_to_test
from clew.conversation import canonical
from clew.conversation.groups import group_messages
from clew.conversation.model import Call, Group, Image, Message, Reasoning, Text
from clew.laws import parameters
from clew.laws.conversations import conversations
from clew.laws.stored import group_keys
from clew.laws.suite import *  # noqa: F403 - the laws themselves

pytest_generate_tests = parameters(formats_to_test(), pairs_to_test())

# --- 10 and 11: what a key sees ----------------------------------------------------------------------------------


def _changed_text(rng: random.Random, text: str) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(["x", " ", "\n", "é", "\u200b"]) + text[at:]


def _changes(message: Message, rng: random.Random) -> list[Message]:
    """Returns the message with one thing changed that a key sees, in every way that it offers."""
    replace = msgspec.structs.replace
    made: list[Message] = []
    if message.role == "user":
        made.append(replace(message, role="assistant"))
    for at, part in enumerate(message.parts):
        others: list[Text | Call] = []
        if isinstance(part, Text):
            others = [Text(_changed_text(rng, part.text))]
        elif isinstance(part, Call):
            name = _changed_text(rng, part.name)
            others = [Call(part.id, name, part.source), Call(part.id, part.name, '["other"]')]
        made += [replace(message, parts=(*message.parts[:at], other, *message.parts[at + 1 :])) for other in others]
    return made


@given(conversations(1), st.randoms(use_true_random=False))
def test_a_change_shows_from_its_group_on(messages: tuple[Message, ...], rng: random.Random) -> None:
    before = group_keys(messages)
    group = -1
    for at, message in enumerate(messages):
        group += message.role != "tool"
        for other in _changes(message, rng):
            after = group_keys((*messages[:at], other, *messages[at + 1 :]))
            assert after[:group] == before[:group]
            assert all(a != b for a, b in zip(after[group:], before[group:], strict=True))


@given(conversations(1))
def test_what_is_residue_changes_no_key(messages: tuple[Message, ...]) -> None:
    ids: dict[str, str] = {}

    def other_id(call_id: str) -> str:
        return ids.setdefault(call_id, f"renamed {len(ids)}")

    def other(message: Message) -> Message:
        parts = [Call(other_id(p.id), p.name, p.source) if isinstance(p, Call) else p for p in message.parts]
        parts = [Image("image/webp", "AAAA") if isinstance(p, Image) else p for p in parts]
        parts = [Reasoning("never thought"), *(p for p in parts if not isinstance(p, Reasoning))]
        return Message(
            message.role, tuple(parts), "agent", "notice", 7, "another", "reply", other_id(message.call_id), True
        )

    assert group_keys([other(message) for message in messages]) == group_keys(messages)


@given(conversations(1))
def test_the_order_of_calls_counts(messages: tuple[Message, ...]) -> None:
    before = group_keys(messages)
    for number, group in enumerate(group_messages(messages)):
        calls = group.head.calls
        if len({canonical.canonical_form(Group(Message("assistant", (call,)))) for call in calls}) < max(len(calls), 2):
            continue
        turned = msgspec.structs.replace(group.head, parts=(*calls[::-1], Text(group.head.text)))
        other = group_keys([turned if message is group.head else message for message in messages])
        assert other[:number] == before[:number]
        assert all(a != b for a, b in zip(other[number:], before[number:], strict=True))


# --- 12: everywhere the same -------------------------------------------------------------------------------------

_PRINT_KEYS = """
import sys
from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
arguments = '{"b":{"z":1.50,"a":[1e2]},"a":"\\\\u00e9","é":null,"🚀":0}'
messages = (make_user("ä"), make_assistant(make_call("1", "x", arguments), make_call("2", "y")),
            make_result("2", "b"), make_result("1", "a"))
sys.stdout.write(" ".join(keys_of(messages)))
"""


def test_keys_do_not_depend_on_the_process() -> None:
    told: set[str] = set()
    for seed, locale in (("0", "C"), ("7", "tr_TR.UTF-8")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONUTF8": "1"}
        done = subprocess.run([sys.executable, "-c", _PRINT_KEYS], env=env, capture_output=True, check=True, timeout=60)
        told.add(done.stdout.decode())
    assert len(told) == 1
    assert len(told.pop().split()) == 2
