import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.calls import view_call, view_calls
from clew.verbs.show import ShownCall, ShownResult
from cli_samples import make_group


def gist(arguments, cwd="/home/dev/app"):
    return view_call(ShownCall("1", "tool", arguments), None, cwd).gist


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"file_path": "/home/dev/app/src/a.py", "limit": 3}', "src/a.py"),
        ('{"file_path": "/elsewhere/a.py"}', "/elsewhere/a.py"),
        ('{"command": "pytest -q", "description": "Run"}', "pytest -q"),
        ('{"command": ["bash", "-lc", "ls | wc"]}', "ls | wc"),
        ('{"command": ["ls", "a b"]}', "ls 'a b'"),
        ('{"cmd": "make\\nmake test"}', "make"),
        ('{"pattern": "x.*"}', "x.*"),
        ('{"unknown": "text"}', "text"),
        ('{"number": 3}', ""),
        ("{}", ""),
        ("", ""),
        ("not json at all", "not json at all"),
        ("[1, 2]", "[1, 2]"),
        ("{" * 5000, "{" * 5000),
    ],
)
def test_the_argument_that_matters(arguments, expected):
    assert gist(arguments) == expected


def test_edits_are_counted():
    call = ShownCall("1", "Edit", '{"file_path": "a", "old_string": "x", "new_string": "y\\nz"}')
    assert view_call(call, None).size == "+2 -1"


def test_the_full_form_has_every_argument_that_the_line_does_not_show():
    call = ShownCall("1", "Task", '{"description": "Find", "prompt": "Who?\\nAll.", "n": {"a": [1]}}')
    view = view_call(call, None)
    assert view.gist == "Find"
    assert view.rest == (("prompt", "Who?\nAll."), ("n", '{"a": [1]}'))
    long_command = view_call(ShownCall("1", "Bash", '{"command": "make\\nmake test"}'), None)
    assert long_command.rest == (("command", "make\nmake test"),)


def test_results_find_their_calls_and_strays_stay():
    group = make_group(
        "assistant",
        "",
        tool_calls=(ShownCall("a", "x", ""), ShownCall("a", "y", ""), ShownCall("b", "z", "")),
        tool_results=(
            ShownResult("a", "one", None),
            ShownResult("q", "stray", None),
            ShownResult("a", "two\n\nlast line \n\n", True),
        ),
    )
    calls, strays = view_calls(group)
    assert [call.result.text if call.result else None for call in calls] == ["one", "two\n\nlast line \n\n", None]
    assert [call.failed for call in calls] == [False, True, False]
    assert calls[1].last_line == "last line"
    assert [stray.text for stray in strays] == ["stray"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(["file_path", "path", "command", "edits", "old_string", "new_string", "content", "patch", "x"]),
        JSON,
    )
)
def test_any_arguments_can_be_shown(arguments):
    import json

    view = view_call(ShownCall("1", "t", json.dumps(arguments)), None, "/x")
    assert "\n" not in view.gist
