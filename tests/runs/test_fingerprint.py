"""Digests: framing, item ids, source artifact, remotes."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.runs.fingerprint import (
    Fingerprint,
    ItemId,
    clean_path,
    field_hash,
    item_fingerprint,
    item_id,
    remote_identity,
    repository_digest,
    source_artifact,
    tree_digest,
)

fields = st.lists(st.text(max_size=8), max_size=4)


@settings(max_examples=80)
@given(fields, fields)
def test_framing_keeps_different_lists_of_fields_apart(left: list[str], right: list[str]) -> None:
    assert (field_hash(*left) == field_hash(*right)) == (left == right)


def test_no_fields_are_the_hash_of_nothing() -> None:
    assert field_hash() == hashlib.sha256(b"").hexdigest()
    assert field_hash("ab", "") != field_hash("a", "b")


def test_scenario_109_item_ids_follow_cleaned_paths_and_not_content() -> None:
    base = item_id("review", "range", "p", "p")
    assert item_id("review", "range", "./a/../p", "p") == base
    assert item_id("review", "range", "./a/../p", "./p") == base
    others = {
        item_id("review", "range", "", "p"),
        item_id("review", "range", "q", "p"),
        item_id("review", "commit", "p", "p"),
        item_id("translate", "range", "p", "p"),
    }
    assert len(others) == 4
    assert base not in others
    assert item_fingerprint("range", b"a") != item_fingerprint("range", b"b")
    assert base == hashlib.sha256(b"review\0range\0p\0p").hexdigest()


@pytest.mark.parametrize(
    ("path", "cleaned"), [("", ""), (".", ""), ("./", ""), ("a//b/", "a/b"), ("//a", "/a"), ("a/./b/..", "a")]
)
def test_paths_are_cleaned(path: str, cleaned: str) -> None:
    assert clean_path(path) == cleaned


def entry(name: str, content: str) -> tuple[ItemId, Fingerprint]:
    return item_id("review", "range", name, name), item_fingerprint("range", content.encode())


def test_scenario_108_of_two_diffs_of_one_item_the_first_counts() -> None:
    assert source_artifact([entry("a", "1"), entry("a", "2")]) == source_artifact([entry("a", "1")])
    assert source_artifact([entry("a", "1")]) != source_artifact([entry("a", "2")])


@settings(max_examples=50)
@given(st.permutations([entry(name, name) for name in "abcd"]))
def test_the_artifact_is_that_of_a_set(order: list[tuple[ItemId, Fingerprint]]) -> None:
    assert source_artifact(order) == source_artifact([entry(name, name) for name in "abcd"])
    assert source_artifact(order[1:]) != source_artifact(order)


def test_a_work_tree_moves_the_artifact_and_an_unknown_one_makes_it_unknown() -> None:
    entries = [entry("a", "1")]
    trees = [tree_digest("/r", "h", "clean"), tree_digest("/r2", "h", "clean"), tree_digest("/r", "h2", "clean")]
    trees.append(tree_digest("/r", "h", "dirty"))
    assert len({source_artifact(entries, tree) for tree in trees} | {source_artifact(entries)}) == 5
    assert source_artifact(entries, tree_digest("/r", None, "clean")) == ""


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("https://user:s3cret@Git.Example/a/b.git", "git.example/a/b"),
        ("https://git.example/a/b/", "git.example/a/b"),
        ("git@git.example:a/b.git", "git.example/a/b"),
        ("ssh://git@git.example/a/b", "git.example/a/b"),
        ("https://git.example:8443/a/b?token=x#y", "git.example:8443/a/b"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("file:///srv/git/a.git", "/srv/git/a.git"),
        ("", ""),
    ],
)
def test_a_remote_is_named_without_its_credentials(url: str, identity: str) -> None:
    assert remote_identity(url) == identity


def test_no_remote_has_no_digest() -> None:
    assert repository_digest("") == ""
    assert repository_digest("git@h.example:a/b") == repository_digest("https://t0ken@h.example/a/b.git")
