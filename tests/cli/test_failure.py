import errno
import json

import pytest

from clew.cli.failure import as_json, as_lines, failure_of, failure_of_defect, failure_of_system
from clew.cli.style import Look
from clew.errors import AmbiguousError, ClewError, FormatError, LeaseError, Refused, UnwritableContent
from cli_samples import HOSTILE

DIVERGED = Refused(
    "both went on after message 41: here +3, there +14. Nothing was written",
    code="target_diverged",
    hint="--new makes a second session.",
    session="86d7",
    path="/home/dev/x.jsonl",
    record=118,
    offset=90112,
    group=41,
)


def test_what_where_why_and_the_act():
    assert as_lines(failure_of(DIVERGED), Look()) == [
        "clew: both went on after message 41: here +3, there +14. Nothing was written",
        "  where session 86d7, /home/dev/x.jsonl, record 118, byte 90112",
        "  why   what lies there went on by itself, and writing would cover it (target_diverged)",
        "  do    --new makes a second session.",
    ]


def test_the_json_form_has_everything():
    assert json.loads(as_json(failure_of(DIVERGED))) == {
        "error": {
            "status": 5,
            "code": "target_diverged",
            "message": DIVERGED.message,
            "hint": DIVERGED.hint,
            "session": "86d7",
            "path": "/home/dev/x.jsonl",
            "record": 118,
            "offset": 90112,
            "group": 41,
        }
    }


def test_lines_without_content_are_left_out():
    assert as_lines(failure_of(ClewError("it failed")), Look()) == ["clew: it failed"]


def test_what_the_message_names_is_not_said_twice():
    failure = failure_of(ClewError("no session in /x", path="/x", session="86d7"))
    assert as_lines(failure, Look())[1:] == ["  where session 86d7"]


def test_record_and_offset_zero_are_places():
    assert "record 0, byte 0" in as_lines(failure_of(FormatError("x", record=0, offset=0)), Look())[1]


def test_a_refusal_names_its_code():
    assert "  why   handle forked" in as_lines(failure_of(LeaseError("x", code="handle_forked")), Look())


def test_several_candidates_stay_on_their_lines():
    lines = as_lines(failure_of(AmbiguousError("2 sessions answer to 'a':\n  claude:a1\n  codex:a2")), Look())
    assert lines[0].splitlines()[1:] == ["  claude:a1", "  codex:a2"]


def test_hostile_texts_do_nothing():
    error = UnwritableContent(HOSTILE, hint=HOSTILE, code=HOSTILE, path=HOSTILE, session=HOSTILE, reason=HOSTILE)
    failure = failure_of(error)
    for text in ("\n".join(as_lines(failure, Look())), as_json(failure)):
        assert not any(char in text for char in "\x1b\x00\x7f\x9b\u202e\u200b\ud800")
    assert json.loads(as_json(failure))["error"]["status"] == 5


def test_what_the_system_reports():
    failure = failure_of_system(OSError(errno.ENOSPC, "No space left on device", "/x/y"))
    assert (failure.status, failure.message) == (1, "/x/y: No space left on device")
    assert failure.concerns == {"path": "/x/y"}


@pytest.mark.parametrize(("verbose", "told"), [(False, True), (True, False)])
def test_a_defect_says_where_to_look(verbose, told):
    failure = failure_of_defect(KeyError("x"), verbose=verbose)
    assert (failure.status, failure.code) == (1, "unexpected")
    assert ("-v" in failure.hint) is told
