"""Changes read through git: every kind, odd names, and surroundings that must not matter."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from clew.errors import ClewError, NotFoundError
from clew.runs.review.diff import (
    added_patch,
    changes_between,
    changes_in_worktree,
    changes_staged,
    show_name,
    show_pattern,
)
from clew.runs.review.git import (
    empty_tree,
    find_head,
    first_parent,
    index_tree,
    merge_base,
    open_repository,
    remote_address,
    resolve_commit,
)
from runs.shop import Shop, environment
from runs.toys import tree_of

ODD = 'a b\tç"q\n1.py'


def told(changes: object) -> dict[str, str]:
    return {change.name: change.status for change in changes}  # type: ignore[attr-defined]


def test_every_kind_of_change(shop: Shop) -> None:
    git = shop.open()
    changes = changes_between(git, resolve_commit(git, "base"), resolve_commit(git, "main"))
    assert told(changes) == {
        "app.py": "changed",
        "gone.py": "deleted",
        "new.py": "renamed",
        "lib/cart.py": "added",
        "logo.png": "added",
        "poetry.lock": "added",
    }
    by_name = {change.name: change for change in changes}
    assert by_name["new.py"].old_path == "old.py"
    assert by_name["logo.png"].is_binary
    assert not by_name["app.py"].is_binary
    assert by_name["app.py"].patch.startswith(b"diff --git a/app.py b/app.py\nindex ")
    assert b"+    return open(path, encoding='utf-8').read()" in by_name["app.py"].patch
    assert by_name["gone.py"].path == ""


def test_no_two_names_are_shown_alike() -> None:
    pieces = (b"a", b"\\", b"\\xff", b"\\\\xff", b"\xff", b"\xc3\xa9", b"\\xe9")
    names = {b"".join(parts) for count in (1, 2, 3) for parts in itertools.product(pieces, repeat=count)}
    assert len({show_name(name) for name in names}) == len(names)
    assert show_name(b"bad/\xff.py") == "bad/\\xff.py"
    assert show_name(b"odd\\name.py") == "odd\\name.py", "what needs no escape is shown as it is"


def test_a_name_and_one_that_spells_its_escape_are_two_changes(shop: Shop) -> None:
    base = shop.git("rev-parse", "HEAD")
    for name in (b"\xff.py", b"\\xff.py"):
        (shop.root / os.fsdecode(name)).write_text("x\n")
    head = shop.commit({})
    git = shop.open()
    changes = changes_between(git, resolve_commit(git, base), resolve_commit(git, head))
    assert {change.raw_path: change.name for change in changes} == {
        b"\xff.py": "\\xff.py",
        b"\\xff.py": "\\\\xff.py",
    }


def test_a_pattern_that_is_text_says_how_names_are_shown() -> None:
    once = show_pattern(b"bad/\xff*")
    assert once == "bad/\\xff*"
    assert show_pattern(os.fsencode(once)) == once, "a resume reads it again as it was kept"


def test_odd_names_links_modes_and_types(shop: Shop) -> None:
    base = shop.git("rev-parse", "HEAD")
    shop.write({ODD: "x\n", "run.sh": "true\n", "kind": "text\n", "diff --git a/x b/x": "diff --git a/y b/y\n"})
    (shop.root / "link").symlink_to("app.py")
    os.chmod(shop.root / "run.sh", 0o755)
    os.mkdir(shop.root / os.fsdecode(b"bad"))
    (shop.root / os.fsdecode(b"bad/\xff.py")).write_text("x\n")
    shop.commit({})
    (shop.root / "kind").unlink()
    (shop.root / "kind").symlink_to("run.sh")
    os.chmod(shop.root / "run.sh", 0o644)
    head = shop.commit({"empty.py": ""})
    git = shop.open()
    changes = {
        change.name: change for change in changes_between(git, resolve_commit(git, base), resolve_commit(git, head))
    }
    assert changes[ODD].patch.endswith(b"+x\n")
    assert changes["bad/\\xff.py"].blob
    assert changes["link"].mode == "120000"
    assert set(changes) == {ODD, "run.sh", "kind", "link", "bad/\\xff.py", "diff --git a/x b/x", "empty.py"}
    second = {c.name: c for c in changes_between(git, resolve_commit(git, "HEAD~1"), resolve_commit(git, head))}
    assert second["kind"].patch.count(b"diff --git ") == 2, "a change of type is told as two"
    assert second["run.sh"].patch.splitlines()[1:] == [b"old mode 100755", b"new mode 100644"]


def test_the_surroundings_do_not_change_the_answer(shop: Shop) -> None:
    git = shop.open()
    base, head = resolve_commit(git, "base"), resolve_commit(git, "main")
    before = changes_between(git, base, head)
    (shop.root / ".gitattributes").write_text("*.py binary diff=nothing\n")
    shop.write({"app.py": "dirty\n"})
    for setting in (
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.algorithm", "patience"),
        ("diff.renames", "false"),
        ("diff.context", "9"),
        ("diff.external", "/bin/false"),
        ("diff.suppressBlankEmpty", "true"),
        ("core.quotePath", "true"),
        ("color.ui", "always"),
    ):
        shop.git("config", *setting)
    shop.git("checkout", "-q", "-f", "base")
    hostile = shop.environment | {"GIT_DIR": "/nowhere", "GIT_EXTERNAL_DIFF": "/bin/false", "GIT_INDEX_FILE": "/x"}
    assert changes_between(open_repository(shop.root, hostile), base, head) == before


def test_reading_changes_nothing_in_the_repository(shop: Shop) -> None:
    shop.write({"app.py": "staged\n"})
    shop.git("add", "app.py")
    shop.write({"app.py": "unstaged\n", "untracked.py": "x\n"})
    os.utime(shop.root / "new.py", (1, 1))
    before = tree_of(shop.folder)
    git = shop.open()
    changes_between(git, resolve_commit(git, "base"), resolve_commit(git, "main"))
    changes_staged(git)
    changes_in_worktree(git)
    index_tree(git)
    empty_tree(git)
    assert tree_of(shop.folder) == before


def test_the_index_and_the_work_tree(shop: Shop) -> None:
    shop.write({"app.py": "staged\n"})
    shop.git("add", "app.py")
    shop.write(
        {"app.py": "staged\nand more\n", "untracked.py": "x = 1", "sub/ignored.log": "x", ".gitignore": "*.log\n"}
    )
    os.utime(shop.root / "new.py", (1, 1))
    git = shop.open()
    staged = changes_staged(git)
    assert told(staged) == {"app.py": "changed"}
    assert b"+staged\n" in staged[0].patch
    worktree = {change.name: change for change in changes_in_worktree(git)}
    assert told(worktree.values()) == {"app.py": "changed", "untracked.py": "added", ".gitignore": "added"}
    assert worktree["app.py"].content == b"staged\nand more\n"
    assert worktree["untracked.py"].patch.endswith(b"@@ -0,0 +1 @@\n+x = 1\n\\ No newline at end of file\n")
    shop.git("add", "-A")
    assert index_tree(git) == shop.git("write-tree")


def test_the_content_of_a_file_whose_name_is_no_text(shop: Shop) -> None:
    odd, spelled = shop.root / os.fsdecode(b"caf\xe9.py"), shop.root / "caf\\xe9.py"
    odd.write_text("one\n")
    shop.commit({})
    odd.write_text("two\n")
    spelled.write_text("another file\n")
    [change] = [one for one in changes_in_worktree(shop.open()) if one.status == "changed"]
    assert (change.name, change.content) == ("caf\\xe9.py", b"two\n")


def test_an_untracked_file_has_the_patch_that_git_would_write(shop: Shop) -> None:
    contents = {"one": b"a\n", "none": b"", "two": b"a\nb", "bin": b"\0x", "crlf": b"a\r\n\r\n"}
    shop.write(contents)
    mine = {c.name: c.patch for c in changes_in_worktree(shop.open()) if c.name in contents}
    shop.git("add", "-A")
    theirs = {c.name: c.patch for c in changes_staged(shop.open()) if c.name in contents}
    for name in contents:
        without_index = b"".join(
            line for line in theirs[name].splitlines(keepends=True) if not line.startswith(b"index ")
        )
        assert mine[name] == without_index, name
    assert added_patch(b"x", "100644", b"").endswith(b"new file mode 100644\n")


def test_an_unmerged_file_is_told_as_such(shop: Shop) -> None:
    shop.git("checkout", "-q", "-b", "other", "base")
    shop.commit({"app.py": "other\n"})
    with pytest.raises(Exception, match="merge"):
        shop.git("merge", "main")
    assert "unmerged" in {change.status for change in changes_staged(shop.open())}
    with pytest.raises(ClewError, match="cannot be reviewed"):
        index_tree(shop.open())


def test_refs_are_pinned_or_refused(shop: Shop) -> None:
    git = shop.open()
    head = shop.git("rev-parse", "main")
    for spelling in ("main", "HEAD", head, head[:9], "refs/heads/main", "main^{commit}"):
        assert resolve_commit(git, spelling) == head
    for wrong in ("nowhere", "--all", "", "main:app.py", "-x", "HEAD~99"):
        with pytest.raises(NotFoundError) as caught:
            resolve_commit(git, wrong)
        assert caught.value.code == "ref_not_found"
    shop.git("checkout", "-q", "--orphan", "island")
    island = shop.commit({"app.py": "x\n"})
    with pytest.raises(NotFoundError, match="no merge base") as caught:
        merge_base(git, resolve_commit(git, "main"), resolve_commit(git, island))
    assert caught.value.code == "no_merge_base"
    assert first_parent(git, resolve_commit(git, island)) is None
    assert told(changes_between(git, empty_tree(git), resolve_commit(git, island)))["app.py"] == "added"


def test_no_repository_no_git_no_commit(tmp_path: Path) -> None:
    env = environment(tmp_path / "home") | {"GIT_CEILING_DIRECTORIES": str(tmp_path)}
    with pytest.raises(NotFoundError, match="lies in no git repository") as caught:
        open_repository(tmp_path, env)
    assert caught.value.code == "no_repository"
    with pytest.raises(ClewError, match="git is not installed") as missing:
        open_repository(tmp_path, {"PATH": str(tmp_path)})
    assert missing.value.code == "git_missing"
    fresh = Shop(tmp_path)
    fresh.write({"a.py": "x\n"})
    git = fresh.open()
    assert find_head(git) is None
    assert told(changes_in_worktree(git)) == {"a.py": "added"}
    assert changes_staged(git) == ()


def test_the_remote_is_origin_else_the_first_by_name(shop: Shop) -> None:
    git = shop.open()
    assert remote_address(git) == ""
    shop.git("remote", "add", "zeta", "https://z.example/r")
    shop.git("remote", "add", "alpha", "https://a.example/r")
    assert remote_address(git) == "https://a.example/r"
    shop.git("remote", "add", "origin", "git@o.example:r")
    assert remote_address(git) == "git@o.example:r"


def test_a_bare_repository_and_a_linked_work_tree(shop: Shop) -> None:
    bare = shop.folder / "bare.git"
    shop.git("clone", "-q", "--bare", str(shop.root), str(bare))
    git = open_repository(bare, shop.environment)
    assert git.root == bare
    assert len(changes_between(git, resolve_commit(git, "base"), resolve_commit(git, "main"))) == 6
    shop.git("worktree", "add", "-q", "--detach", str(shop.folder / "linked"), "base")
    linked = open_repository(shop.folder / "linked", shop.environment)
    assert linked.root == shop.folder / "linked"
    assert changes_between(linked, resolve_commit(linked, "base"), resolve_commit(linked, "main")) == changes_between(
        shop.open(), resolve_commit(linked, "base"), resolve_commit(linked, "main")
    )
