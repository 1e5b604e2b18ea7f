"""Reports: Markdown, SARIF and JSON say what the log says, and no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.runs.engine import RunOptions, carry_out
from clew.runs.finding import SEVERITIES, Finding
from clew.runs.folder import FoundRun, get_run
from clew.runs.lineage import Target
from clew.runs.operation import Done, Item, ItemContext, ItemFailed
from clew.runs.report import Report, as_markdown, make_report
from clew.runs.sarif import as_sarif
from clew.runs.summary import ShownItem, Summary
from runs.shop import Scripted, Shop, answer, finding, review
from runs.toys import Toy, make_settings

# --- the shape of SARIF 2.1.0, as far as it is used here ---------------------------------------------------
# Members of each object (all are closed in the standard): required ones are marked with "!".

SHAPES: dict[str, dict[str, str]] = {
    "log": {"$schema": "uri", "version!": "version", "runs!": "[run]"},
    "run": {
        "tool!": "tool",
        "automationDetails": "details",
        "invocations": "[invocation]",
        "originalUriBaseIds": "{artifact}",
        "columnKind": "columns",
        "results": "[result]",
        "properties": "bag",
    },
    "tool": {"driver!": "driver"},
    "driver": {"name!": "text", "version": "text", "rules": "[rule]"},
    "rule": {"id!": "text", "shortDescription": "message!"},
    "details": {"id": "text"},
    "invocation": {
        "executionSuccessful!": "bool",
        "startTimeUtc": "time",
        "endTimeUtc": "time",
        "toolExecutionNotifications": "[notification]",
    },
    "notification": {"level": "level", "message!": "message!", "locations": "[location]"},
    "result": {
        "ruleId": "text",
        "ruleIndex": "index",
        "level": "level",
        "message!": "message!",
        "locations": "[location]",
        "partialFingerprints": "{text}",
        "properties": "bag",
    },
    "location": {"physicalLocation": "physical"},
    "physical": {"artifactLocation": "artifact", "region": "region"},
    "artifact": {"uri": "reference", "uriBaseId": "text", "description": "message!"},
    "region": {"startLine": "line", "endLine": "line", "snippet": "content"},
    "content": {"text": "any text"},
    "message!": {"text!": "text"},
}
SCALARS = {
    "text": lambda v: isinstance(v, str) and v != "",
    "any text": lambda v: isinstance(v, str),
    "uri": lambda v: isinstance(v, str) and re.match(r"[a-z]+:", v),
    "reference": lambda v: isinstance(v, str) and re.fullmatch(r"(?:[A-Za-z0-9._~/!$&'()*+,;=:@-]|%[0-9A-F]{2})*", v),
    "version": lambda v: v == "2.1.0",
    "columns": lambda v: v in ("utf16CodeUnits", "unicodeCodePoints"),
    "bool": lambda v: isinstance(v, bool),
    "level": lambda v: v in ("none", "note", "warning", "error"),
    "index": lambda v: isinstance(v, int) and v >= -1,
    "line": lambda v: isinstance(v, int) and v >= 1,
    "time": lambda v: isinstance(v, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", v),
    "bag": lambda v: isinstance(v, dict),
}


def check(value: Any, shape: str, where: str = "$") -> None:
    if shape in SCALARS:
        assert SCALARS[shape](value), f"{where}: {value!r} is no {shape}"
        return
    if shape[0] == "[":
        assert isinstance(value, list), where
        for index, member in enumerate(value):
            check(member, shape[1:-1], f"{where}[{index}]")
        return
    assert isinstance(value, dict), where
    if shape[0] == "{":
        for name, member in value.items():
            check(member, shape[1:-1], f"{where}.{name}")
        return
    members = {name.rstrip("!"): kind for name, kind in SHAPES[shape].items()}
    for name in SHAPES[shape]:
        assert not name.endswith("!") or name[:-1] in value, f"{where} lacks {name}"
    for name, member in value.items():
        assert name in members, f"{where}.{name} is not in the standard"
        check(member, members[name], f"{where}.{name}")


def check_sarif(log: dict[str, Any]) -> None:
    check(log, "log")
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            region = result["locations"][0]["physicalLocation"].get("region")
            assert region is None or region["startLine"] <= region["endLine"]


def report_of(shop: Shop, run_id: str) -> Report:
    return make_report(get_run(shop.settings.folder, run_id))  # type: ignore[attr-defined]


def reply(question: str, context: ItemContext) -> str:
    if "File: new.py" in question:
        raise ItemFailed("provider", "HTTP 500")
    said = finding(snippet="encoding", text="a `<b>` and <img src=x> ![x](http://e)", category="Resource Leak")
    return answer(said, finding(severity="info", suggestion="say it"))


def test_a_review_as_sarif(shop: Shop) -> None:
    result = review(shop, Scripted(reply), from_ref="base")
    log = as_sarif(report_of(shop, result.manifest.run_id), "1.2")
    check_sarif(log)
    [run] = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["other", "resource-leak"]
    assert len(run["results"]) == 4
    first = next(r for r in run["results"] if r["ruleId"] == "resource-leak")
    assert first["level"] == "error"
    assert first["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    [told] = run["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"] == "not reviewed: provider: HTTP 500"
    assert run["invocations"][0]["executionSuccessful"] is False


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            Finding,
            path=st.text(min_size=1, max_size=8),
            start_line=st.integers(0, 5),
            end_line=st.integers(0, 5),
            category=st.text(max_size=8),
            severity=st.sampled_from(SEVERITIES),
            snippet=st.text(max_size=8),
            text=st.text(min_size=1, max_size=8),
            suggestion=st.text(max_size=8),
        ),
        max_size=4,
    ),
    st.text(max_size=8),
)
def test_any_findings_make_valid_sarif_and_some_markdown(found: list[Finding], reason: str) -> None:
    items = (ShownItem("i", "p q.py", "failed", classification="provider", reason=reason),)
    report = Report(Summary(run_id="r", state="partial", operation="review"), items, tuple(found), {})
    log = as_sarif(report, "")
    check_sarif(log)
    msgspec.json.encode(log)
    assert as_markdown(report).startswith("# Review r\n")


def test_a_review_as_markdown(shop: Shop) -> None:
    first = review(shop, Scripted(reply), from_ref="base")
    other = Scripted(reply, target=Target("azure", "m-2"))
    second = review(
        shop, other, from_ref="base", parent=first.manifest.run_id, options=RunOptions(explicit_provider=True)
    )
    text = as_markdown(report_of(shop, second.manifest.run_id))
    assert "## Findings: 4" in text
    assert "### `app.py`" in text
    assert "**major** resource leak, line 2" in text
    assert "a `<b>` and &lt;img src=x> [x](http://e)" in text
    assert "Suggestion: say it" in text
    assert "- changed on purpose: openai m-1 to azure m-2" in text
    assert f"- goes on from: run {first.manifest.run_id}" in text
    assert "## Not done\n\n- `new.py`: provider: HTTP 500" in text
    assert "## Left out of the selection" in text
    assert "- `gone.py`: deleted" in text


def test_the_report_of_an_interrupted_and_resumed_run_is_that_of_an_uninterrupted_one(shop: Shop) -> None:
    first = review(shop, Scripted(reply), from_ref="base")

    def whole(question: str, context: ItemContext) -> str:
        return reply(question.replace("File: new.py", "File: other"), context)

    second = review(shop, Scripted(whole), from_ref="base", parent=first.manifest.run_id)
    control = review(shop, Scripted(whole), from_ref="base")
    assert report_of(shop, second.manifest.run_id).findings == report_of(shop, control.manifest.run_id).findings

    def body(run_id: str) -> str:
        return as_markdown(report_of(shop, run_id)).partition("## Findings")[2]

    assert body(second.manifest.run_id) == body(control.manifest.run_id)


def test_a_report_of_another_operation_tells_its_results(tmp_path: Path) -> None:
    told = {"translated": {"to": {"agent": "codex", "session_id": "01a2"}, "report": {"restored_messages": 3}}}
    result = carry_out(Toy({"a`b.jsonl": "1"}, lambda item, context: Done(told)), make_settings(tmp_path))
    text = as_markdown(make_report(FoundRun("run-1", result.log_path)))
    assert "## Translated" in text
    assert "- `` a`b.jsonl ``: codex 01a2: 3 restored, 0 written" in text
    assert "findings" not in text


def test_a_killed_run_has_a_report_too(tmp_path: Path) -> None:
    def work(item: Item, context: ItemContext) -> Done:
        return Done({"findings": []})

    result = carry_out(Toy({"a": "1", "b": "2"}, work), make_settings(tmp_path))
    lines = result.log_path.read_bytes().splitlines(keepends=True)
    result.log_path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    report = make_report(FoundRun("run-1", result.log_path))
    text = as_markdown(report)
    assert "- state: aborted" in text
    assert "- `b`: undecided" in text
    check_sarif(as_sarif(report, "1"))


@pytest.mark.parametrize("form", ["markdown", "sarif", "json"])
def test_planted_secrets_are_in_no_report(shop: Shop, form: str) -> None:
    planted = "tok_Hidden9"
    shop.git("remote", "add", "origin", f"https://user:{planted}@git.example/shop.git")
    (shop.root / ".clew").mkdir()
    (shop.root / ".clew" / "rules.toml").write_text(f"default = 'password={planted}'\n")

    def refuse(question: str, context: ItemContext) -> str:
        raise ItemFailed("provider", f"https://x:{planted}@host said Bearer {planted}")

    result = review(shop, Scripted(refuse), from_ref="base")
    report = report_of(shop, result.manifest.run_id)
    made = {
        "markdown": as_markdown(report),
        "sarif": msgspec.json.encode(as_sarif(report, "1")).decode(),
        "json": msgspec.json.encode(report).decode(),
    }
    assert "REDACTED" in made[form]
    assert planted not in made[form]
