"""Rule layers, the file filter, patterns, selection."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import UnreadableSource, UsageError
from clew.runs.review.diff import Change
from clew.runs.review.glob import expand, matches
from clew.runs.review.rules import (
    BUILT_IN,
    FileFilter,
    Layer,
    PathRule,
    RuleSet,
    file_filter,
    load_layer,
    load_rules,
    rule_for,
    rules_digest,
)
from clew.runs.review.selection import select


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("src/**", "src/b/c", True),
        ("src/**", "other/src/b", False),
        ("**/gen/**", "a/gen/b.py", True),
        ("**/gen/**", "gen/b.py", True),
        ("gen/", "gen/a/b", True),
        ("/a.py", "a.py", True),
        ("/a.py", "b/a.py", False),
        ("*.{py,PYI}", "x.pyi", True),
        ("*.{py}", "x.py", False),
        ("README.?d", "readme.md", True),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("a[b.py", "a[b.py", True),
        ("[[[[!]]x", "[]x", True),
        ("[+--]x", "-x", True),
        ("[A-C&&|~]x", "bx", True),
        ("[a-c]x", "B/x", False),
        ("a[/]b", "a/b", False),
        ("src/[^a]b", "src//b", False),
        ("\u00c9t\u00e9.*", "\u00e9T\u00c9.py", True),
        ("[!]]x", "]x", False),
        ("[!]]x", "ax", True),
        ("[!]", "[!]", True),
        ("**a*b", "a/ab", True),
        ("a**b", "a/x/b", True),
        ("a.py", "axpy", False),
        ("src/a?b", "src/a/b", False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    "pattern", ["**/" * 60 + "x", "*a" * 60 + "b", "**a" * 60 + "b", "{,*}" * 8 + "**/" * 40 + "y"]
)
def test_no_pattern_takes_long_whoever_wrote_it(pattern: str) -> None:
    assert not matches(pattern, "a/" * 300 + "a" * 200)


def test_braces_are_expanded_once() -> None:
    assert expand("{a,b}/{c,d}") == ("a/c", "a/d", "b/c", "b/d")
    assert expand("{a,{b,c}}") == ("{a,b}", "{a,c}")
    with pytest.raises(UsageError, match="stands for"):
        expand("{a,b}" * 9)
    for pattern in ("", "/", "[b-a]"):
        with pytest.raises(UsageError, match="is no pattern"):
            matches(pattern, "a")


@given(st.text("ab/*?[]{},!.\\", max_size=10), st.text("ab/.", max_size=6))
def test_any_pattern_matches_or_is_refused(pattern: str, path: str) -> None:
    try:
        matches(pattern, path)
    except UsageError:
        pass


def layer(*rules: tuple[str, str], **more: object) -> Layer:
    return Layer(tuple(PathRule(path, text) for path, text in rules), **more)  # type: ignore[arg-type]


def test_the_first_match_over_all_layers_wins() -> None:
    rules = RuleSet(
        custom=layer(("*.sql", "custom sql")),
        project=layer(("db/**", "project db"), ("*.sql", "project sql"), ("*.py", "project py")),
        user=layer(("*.py", "global py"), ("*.go", "global go")),
        built_in=layer(default="built in"),
    )
    assert rule_for(rules, "db/x.sql") == "custom sql"
    assert rule_for(rules, "db/x.py") == "project db"
    assert rule_for(rules, "x.py") == "project py"
    assert rule_for(rules, "x.go") == "global go"
    assert rule_for(rules, "x.rs") == "built in"


def test_a_rule_merges_with_the_built_in_on_request() -> None:
    built_in = layer(("*.py", "built-in py"), default="built in")
    rules = RuleSet(project=Layer((PathRule("*.py", "mine", merge=True),)), built_in=built_in)
    assert rule_for(rules, "x.py") == "built-in py\n\nmine"
    assert rule_for(RuleSet(project=layer(("*.py", "mine")), built_in=built_in), "x.py") == "mine"


def test_a_default_ends_its_layer() -> None:
    rules = RuleSet(project=layer(("a.py", "a"), default="rest"), user=layer(("b.py", "never")))
    assert (rule_for(rules, "a.py"), rule_for(rules, "b.py")) == ("a", "rest")


def test_the_filter_comes_whole_from_the_highest_layer_that_has_any() -> None:
    rules = RuleSet(project=Layer(exclude=("gen/",)), user=Layer(include=("src/**",), exclude=("x",)))
    assert file_filter(rules) == FileFilter((), ("gen/",))
    typed = msgspec.structs.replace(rules, typed=FileFilter(("only.py",)))
    assert file_filter(typed) == FileFilter(("only.py",), ())
    assert file_filter(RuleSet()) == FileFilter()


def test_scenario_107_order_default_merge_layer_and_filter_move_the_digest() -> None:
    one, two = ("*.py", "a"), ("*.go", "b")
    variants = [
        RuleSet(),
        RuleSet(project=layer(one, two)),
        RuleSet(project=layer(two, one)),
        RuleSet(project=layer(one, two, default="d")),
        RuleSet(project=layer(one, two, default="e")),
        RuleSet(user=layer(one, two)),
        RuleSet(project=layer(one), user=layer(two)),
        RuleSet(project=Layer((PathRule("*.py", "a", merge=True), PathRule("*.go", "b")))),
        RuleSet(project=layer(one, two, exclude=("x",))),
        RuleSet(project=layer(one, two, include=("x",))),
        RuleSet(built_in=BUILT_IN),
    ]
    assert len({rules_digest(rules) for rules in variants}) == len(variants)
    assert rules_digest(variants[1]) == rules_digest(RuleSet(project=layer(one, two)))
    assert rules_digest(RuleSet(typed=FileFilter((), ("x",)))) == rules_digest(RuleSet(project=Layer(exclude=("x",))))


TOML = """
exclude = ["**/gen/**"]
default = "everything else"
[[rule]]
path = ["*.py", "*.pyi"]
text = "types"
merge = true
"""


def test_rule_files_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(TOML)
    loaded = load_layer(tmp_path / "rules.toml")
    assert loaded == Layer((PathRule(("*.py", "*.pyi"), "types", merge=True),), "everything else", (), ("**/gen/**",))
    (tmp_path / "rules.json").write_bytes(msgspec.json.encode(loaded))
    assert load_layer(tmp_path / "rules.json") == loaded


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.toml", "rule = "),
        ("r.toml", "[[rule]]\npath = '*.py'\n"),
        ("r.toml", "exlude = ['x']"),
        ("r.toml", "exclude = ['']"),
        ("r.toml", "exclude = 'x'"),
        ("r.json", "{"),
        ("r.json", '{"rule": [{"path": "x", "text": 3}]}'),
        ("r.json", "[" * 5000),
        ("r.toml", "\udcff"),
    ],
)
def test_a_rule_file_that_does_not_parse_is_an_error(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(UnreadableSource, match="does not parse") as caught:
        load_layer(path)
    assert caught.value.code == "rules_unreadable"
    assert str(path) in caught.value.message


def test_the_layers_are_found_where_they_belong(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".clew").mkdir(parents=True)
    (root / "sub" / ".clew").mkdir(parents=True)
    (root / "sub" / ".clew" / "rules.toml").write_text("default = 'never read'")
    (root / ".clew" / "rules.toml").write_text("default = 'project'")
    (tmp_path / "user.toml").write_text("default = 'global'")
    (tmp_path / "mine.toml").write_text("default = 'custom'")

    def load(custom: str = "", user: str = "user.toml") -> RuleSet:
        given = tmp_path / custom if custom else None
        return load_rules(root, custom=given, user=tmp_path / user, typed=FileFilter())

    assert rule_for(load("mine.toml"), "x") == "custom"
    assert rule_for(load(), "x") == "project"
    (root / ".clew" / "rules.toml").unlink()
    assert rule_for(load(), "x") == "global"
    assert rule_for(load(user="missing.toml"), "x") == BUILT_IN.default
    with pytest.raises(UnreadableSource):
        load("missing.toml")
    (root / ".clew" / "rules.toml").write_text("")
    (root / ".clew" / "rules.json").write_text("{}")
    with pytest.raises(UsageError, match="two rule files"):
        load()


def change(path: str, patch: bytes = b"x", **more: str) -> Change:
    return Change(more.pop("status", "added"), path, more.pop("old_path", ""), patch, **more)  # type: ignore[arg-type]


def test_each_change_is_selected_or_left_out_with_its_reason() -> None:
    binary = b"diff --git a/b b/b\nBinary files a/b and b/b differ\n"
    changes = (
        change("a.py"),
        change("", status="deleted", old_path="gone.py"),
        change("pic", binary),
        change("vendor/x.py"),
        change("yarn.lock"),
        change("big.py", b"x" * 4001),
        change("sub", mode="160000"),
        change("link", mode="120000"),
        change("torn", status="unmerged"),
    )
    chosen = select(changes, FileFilter((), ("vendor/",)), 1000)
    assert [c.path for c in chosen.selected] == ["a.py"]
    assert {s.path: s.reason for s in chosen.skipped} == {
        "gone.py": "deleted",
        "pic": "binary",
        "vendor/x.py": "excluded",
        "yarn.lock": "extension",
        "big.py": "too large: about 1001 tokens, the limit is 1000",
        "sub": "submodule",
        "link": "symbolic link",
        "torn": "unmerged",
    }
    only = select(changes, FileFilter(("*.lock",)), 1000)
    assert [c.path for c in only.selected] == ["yarn.lock"], "an include brings back what its name leaves out"
    assert {s.reason for s in only.skipped} >= {"not included"}


def test_a_rule_file_that_is_no_file_is_an_error_and_nothing_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / ".clew"
    folder.mkdir()
    path = folder / "rules.toml"
    os.mkfifo(path)
    with pytest.raises(UnreadableSource, match="is no file"):
        load_rules(tmp_path, custom=None, user=None, typed=FileFilter())
    with pytest.raises(UnreadableSource, match="is no file"):
        load_rules(tmp_path / "other", custom=None, user=path, typed=FileFilter())
    for target, said in (("nowhere", "cannot be read: No such file"), ("/dev/zero", "is no file"), (".", "is no file")):
        path.unlink()
        path.symlink_to(target)
        with pytest.raises(UnreadableSource, match=said):
            load_rules(tmp_path, custom=None, user=None, typed=FileFilter())
    path.unlink()
    (folder / "other.toml").write_text('default = "x"')
    path.symlink_to("other.toml")
    assert load_rules(tmp_path, custom=None, user=None, typed=FileFilter()).project.default == "x"


def test_a_rule_file_on_the_command_line_may_be_a_pipe_and_is_read_within_bounds(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b'default = "x"')
    os.close(write)
    assert load_layer(Path(f"/dev/fd/{read}")).default == "x"
    os.close(read)
    with pytest.raises(UnreadableSource, match="more than"):
        load_layer(Path("/dev/zero"))
    with pytest.raises(UnreadableSource, match="cannot be read: No such file"):
        load_layer(tmp_path / "absent.toml")
