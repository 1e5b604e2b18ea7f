"""Findings: read from an answer, and compared between two runs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.runs.compare import compare_findings
from clew.runs.finding import Finding, Unanswerable, findings_of, identity, read_findings, sort_key
from clew.runs.manifest import Coverage, CoverageItem, Manifest, RunInput

LINES = ("import os", "", "def load(path):", "    return open(path).read()", "x = 1")


def manifest(completed: list[str], selected: list[tuple[str, str]] | None = None) -> Manifest:
    pairs = selected or [(path, path) for path in completed]
    items = {new: CoverageItem(new, new, old) for old, new in pairs}
    covered = Coverage(tuple(items.values()), tuple(items[path] for path in completed))
    return Manifest("r", "review", RunInput("range"), coverage=covered)


def finding(path: str, snippet: str = "s", **more: object) -> Finding:
    return Finding(path, snippet=snippet, text="t", **more)  # type: ignore[arg-type]


def test_the_four_lists() -> None:
    before = [finding("a.py", "one"), finding("a.py", "two"), finding("c.py", "three")]
    after = [finding("a.py", " one ", start_line=90), finding("b.py", "new")]
    told = compare_findings(before, after, manifest(["a.py", "b.py"]))
    assert [f.snippet for f in told.new] == ["new"]
    assert [(f.snippet, f.start_line) for f in told.persisting] == [(" one ", 90)], "the later copy is kept"
    assert [f.snippet for f in told.resolved] == ["two"]
    assert [f.snippet for f in told.not_reviewed] == ["three"]


def test_a_multiset_is_matched_and_renames_are_followed() -> None:
    before = [finding("old.py"), finding("old.py"), finding("old.py")]
    after = [finding("new.py"), finding("new.py")]
    told = compare_findings(before, after, manifest(["new.py"], [("old.py", "new.py")]))
    assert (len(told.persisting), len(told.resolved), len(told.new)) == (2, 1, 0)


def test_without_a_manifest_what_is_unmatched_is_resolved() -> None:
    assert len(compare_findings([finding("a")], [], None).resolved) == 1


def test_identity_has_no_line_and_falls_back_to_the_prose() -> None:
    assert identity(Finding("a", 1, text="x  y")) == identity(Finding("a", 9, category="other", text="x y"))
    assert identity(Finding("a", text="x")) != identity(Finding("a", category="bug", text="x"))


some = st.lists(
    st.builds(
        Finding,
        path=st.sampled_from(["a", "b"]),
        start_line=st.integers(0, 3),
        category=st.sampled_from(["", "other", "bug"]),
        snippet=st.sampled_from(["", "s", " s "]),
        text=st.sampled_from(["t", "u"]),
    ),
    max_size=6,
)
manifests = st.sampled_from(
    [None, manifest([]), manifest(["a"]), manifest(["a", "b"], [("b", "a"), ("a", "b")]), manifest(["a"], [("c", "a")])]
)


@settings(max_examples=80)
@given(some, manifests)
def test_law_8_a_run_persists_in_itself(found: list[Finding], told: Manifest | None) -> None:
    result = compare_findings(found, found, told)
    assert result.persisting == tuple(sorted(found, key=sort_key))
    assert (result.new, result.resolved, result.not_reviewed) == ((), (), ())


@settings(max_examples=80)
@given(some, some, manifests, st.randoms())
def test_law_8_the_order_of_findings_does_not_matter(
    before: list[Finding], after: list[Finding], told: Manifest | None, random: object
) -> None:
    result = compare_findings(before, after, told)
    random.shuffle(before)  # type: ignore[attr-defined]
    random.shuffle(after)  # type: ignore[attr-defined]
    assert compare_findings(before, after, told) == result
    assert len(result.new) + len(result.persisting) == len(after)
    assert len(result.persisting) + len(result.resolved) + len(result.not_reviewed) == len(before)


# --- reading an answer ------------------------------------------------------------------------------------


def test_an_answer_is_read_from_a_fence_and_lines_are_set_right() -> None:
    answer = """Thinking: [1] first, {"a": 1}. Here:
```json
{"findings": [{"start_line": 40, "severity": "MAJOR", "category": " Resource  Leak ",
  "snippet": "return open(path).read()", "text": "the file is not closed", "suggestion": "use with"}]}
```"""
    found, rejected = read_findings(answer, "a.py", LINES)
    assert rejected == ()
    assert found == (
        Finding(
            "a.py", 4, 4, "resource leak", "major", "return open(path).read()", "the file is not closed", "use with"
        ),
    )


def test_a_bare_list_and_no_findings() -> None:
    assert read_findings("[]", "a.py", LINES) == ((), ())
    assert read_findings('{"findings": []}', "a.py", LINES) == ((), ())


@pytest.mark.parametrize(
    "answer", ["", "all fine", '{"remarks": []}', '{"findings": "none"}', "[1, 2]", '{"findings": [', "[" * 9000]
)
def test_garbage_is_no_answer(answer: str) -> None:
    with pytest.raises(Unanswerable, match="holds no list of findings"):
        read_findings(answer, "a.py", LINES)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"text": ""}, "has no text"),
        ({"text": 3}, "text that is no text"),
        ({"text": "x", "severity": "awful"}, "unknown severity"),
        ({"text": "x", "start_line": -1}, "no line number"),
        ({"text": "x", "start_line": True}, "no line number"),
        ({"text": "x", "start_line": 5, "end_line": 2}, "before it starts"),
        ({"text": "x", "path": "../../etc/passwd"}, "was not selected"),
        ({"text": "x" * 30_000}, "characters"),
    ],
)
def test_what_is_no_finding_is_rejected_with_a_reason(value: dict[str, object], reason: str) -> None:
    answer = msgspec.json.encode({"findings": [value, {"text": "good"}]}).decode()
    found, rejected = read_findings(answer, "a.py", LINES)
    assert [f.text for f in found] == ["good"]
    assert [r.index for r in rejected] == [0]
    assert reason in rejected[0].reason


def test_a_finding_may_lie_in_another_selected_file_and_never_beyond_the_last_line() -> None:
    answer = '{"findings": [{"path": "./b.py", "text": "x", "start_line": 9}, {"text": "y", "start_line": 99}]}'
    found, rejected = read_findings(answer, "a.py", LINES, {"b.py"})
    assert rejected == ()
    assert [(f.path, f.start_line, f.end_line) for f in found] == [("a.py", 5, 5), ("b.py", 9, 9)]


@settings(max_examples=80)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_findings(text, "a.py", LINES)
    except Unanswerable:
        pass


def test_results_give_fresh_findings() -> None:
    result: dict[str, object] = {"findings": [{"path": "a", "text": "x"}, {"nonsense": 1}, 3]}
    assert findings_of(result) == (Finding("a", text="x"),)
    assert findings_of({}) == ()
    assert findings_of({"findings": 3}) == ()
