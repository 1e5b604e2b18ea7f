"""The judge finds what is missing, changed or added, and lets pass what agents may do on the way."""

from typing import Any

import pytest

from agents.lab.judge import as_groups, judge_messages, judge_sees, to_groups
from agents.lab.seen import Seen, from_messages_api, from_responses_api


def user(*texts: str, images: int = 0) -> dict[str, Any]:
    found = {"role": "user", "text": "".join(texts), "texts": list(texts), "tool_calls": [], "tool_results": []}
    return found | {"images": ["data:,"] * images}


def assistant(text: str, *calls: tuple[str, str, Any]) -> dict[str, Any]:
    made = [{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls]
    return {"role": "assistant", "text": text, "texts": [text], "tool_calls": made, "tool_results": [], "images": []}


def results(*found: tuple[str, str]) -> dict[str, Any]:
    made = [{"call_id": call_id, "text": text, "is_error": False} for call_id, text in found]
    return {"role": "tool", "text": "", "texts": [], "tool_calls": [], "tool_results": made, "images": []}


SENT = [
    user("Hello."),
    assistant("Both.", ("a", "shell", {"cmd": "ls"}), ("b", "shell", {"cmd": "pwd"})),
    results(("b", "/home"), ("a", "knots")),
    assistant("Done."),
]

GROUPS = as_groups(SENT)


def test_results_go_to_their_calls_in_the_order_of_the_calls() -> None:
    groups = to_groups(SENT)
    assert [group["role"] for group in groups] == ["user", "assistant", "assistant"]
    assert [one["text"] for one in groups[1]["tool_results"]] == ["knots", "/home"]
    assert to_groups(groups) == groups


def test_repeated_ids_are_answered_in_order_and_strays_are_no_messages() -> None:
    sent = [
        assistant("", ("x", "shell", {"cmd": "1"})),
        results(("x", "one"), ("nobody", "stray")),
        assistant("", ("x", "shell", {"cmd": "2"})),
        results(("x", "two")),
    ]
    assert [[one["text"] for one in group["tool_results"]] for group in to_groups(sent)] == [["one"], ["two"]]


def test_the_same_conversation_has_no_differences() -> None:
    assert judge_messages(SENT, GROUPS) == []


def test_neighbours_may_be_joined_and_fillers_put_in() -> None:
    groups = as_groups([user("One. "), user("Two."), user("Three.")])
    assert judge_messages([user("One. ", "Two."), assistant("No response requested."), user("Three.")], groups) == []
    assert judge_messages([user("One. Two."), user("Three."), assistant("No response requested.")], groups) == []


def test_an_unanswered_call_may_get_an_invented_result() -> None:
    groups = as_groups([*SENT[:2], results(("a", "knots"))])
    assert judge_messages([*SENT[:2], results(("a", "knots"), ("b", "aborted"))], groups) == []
    first, second = SENT[1]["tool_calls"]
    apart = [
        SENT[0],
        SENT[1] | {"tool_calls": [first]},
        results(("a", "knots")),
        assistant("") | {"tool_calls": [second]},
        results(("b", "aborted")),
    ]
    assert judge_messages(apart, groups) == []
    assert judge_messages([*SENT[:2], results(("b", "aborted"))], groups) != []


def test_an_answered_call_may_not_get_another_result() -> None:
    assert judge_messages([*SENT[:2], results(("a", "knots"), ("b", "aborted")), SENT[3]], GROUPS) != []


@pytest.mark.parametrize(
    "sent",
    [
        SENT[1:],
        SENT[:-1],
        [SENT[0], SENT[2], SENT[3]],
        [SENT[0], SENT[1], SENT[3]],
        [*SENT, user("More.")],
        [user("Hello!"), *SENT[1:]],
        [SENT[0], assistant("Both."), *SENT[2:]],
        [SENT[0], assistant("Both.", ("a", "shell", {"cmd": "ls"}), ("b", "shell", {"cmd": "PWD"})), *SENT[2:]],
        [SENT[0], assistant("Both.", ("b", "shell", {"cmd": "pwd"}), ("a", "shell", {"cmd": "ls"})), *SENT[2:]],
        [SENT[0], assistant("Both.", ("a", "bash", {"cmd": "ls"}), ("b", "shell", {"cmd": "pwd"})), *SENT[2:]],
        [user("Hello.", images=1), *SENT[1:]],
        [],
    ],
)
def test_every_other_change_is_a_difference(sent: list[dict[str, Any]]) -> None:
    assert judge_messages(sent, GROUPS) != []


def test_names_may_be_another_spelling_when_the_caller_says_so() -> None:
    renamed = [call | {"name": "shell_1"} for call in SENT[1]["tool_calls"]]
    sent = [SENT[0], SENT[1] | {"tool_calls": renamed}, *SENT[2:]]
    assert judge_messages(sent, GROUPS, rename=lambda name: f"{name}_1") == []


def test_arguments_are_compared_as_values_and_half_a_pair_as_its_replacement() -> None:
    groups = as_groups([assistant("\ud83e", ("a", "shell", {"a": "\ud83e", "b": 1}))])
    sent = [assistant("\ufffd", ("a", "shell", '{"b": 1, "a": "\\ufffd"}'))]
    assert judge_messages(sent, groups) == []


def test_an_agent_that_did_not_resume_is_one_difference() -> None:
    assert len(judge_sees(Seen(exit=1, refusal="No conversation found"), GROUPS)) == 1
    assert len(judge_sees(Seen(exit=0, request=None), GROUPS)) == 1


def test_the_prompt_is_not_part_of_the_history() -> None:
    seen = Seen(exit=0, request={}, messages=(*SENT, user("[note]", "And now?")), prompt="And now?")
    assert [one["text"] for one in seen.history][-2:] == ["Done.", "[note]"]
    assert judge_sees(seen, [*GROUPS, *as_groups([user("[note]")])]) == []


def test_a_request_of_the_messages_api_is_read() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "knots"}], "is_error": True},
        {"type": "text", "text": "<system-reminder>\nso\n</system-reminder>"},
        {"type": "text", "text": "[Request interrupted by user]\n"},
        {"type": "text", "text": "Go on.\n"},
    ]
    messages, injected = from_messages_api(
        {
            "messages": [
                {"role": "system", "content": "env"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Bash", "input": {}}]},
                {"role": "user", "content": content},
            ]
        }
    )
    assert [one["text"] for one in injected] == ["env", "<system-reminder>\nso\n</system-reminder>"]
    assert [one["role"] for one in messages] == ["assistant", "tool", "user"]
    assert messages[1]["tool_results"] == [{"call_id": "a", "text": "knots", "is_error": True}]
    assert messages[2]["texts"] == ["[Request interrupted by user]", "Go on.\n"]


def test_a_request_of_the_responses_api_is_read() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "<environment_context>x</environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "blob"},
        {"type": "custom_tool_call", "name": "apply_patch", "call_id": "p", "input": "*** Begin Patch"},
        {"type": "custom_tool_call_output", "call_id": "p", "output": "Exit code: 1\nno"},
    ]
    messages, injected = from_responses_api({"input": items})
    assert len(injected) == 2
    assert [one["role"] for one in messages] == ["user", "assistant", "tool"]
    assert messages[1]["reasoning"] == [{"text": "hm", "signature": "blob"}]
    assert messages[1]["tool_calls"] == [{"id": "p", "name": "apply_patch", "arguments": "*** Begin Patch"}]
    assert messages[2]["tool_results"] == [{"call_id": "p", "text": "Exit code: 1\nno", "is_error": True}]
