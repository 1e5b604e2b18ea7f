"""Rules of a review: what to look at in which file, in layers, and which files at all.

Layers, highest first: custom (a file named on the command line), project (`.clew/rules.toml` or `.json` at the root of
the repository), global (`rules.toml` in the configuration folder), built-in. The first pattern that matches over all
layers wins; it replaces the built-in text, or with `merge` follows it. The file filter comes whole from the highest
layer that has any. A rule file that exists and does not parse is an error, never an absent layer.

    include = ["src/**"]             the file filter
    exclude = ["**/generated/**"]
    default = "..."                  the text for whatever no pattern of this layer matches
    [[rule]]
    path = "**/*.py"                 or a list
    text = "..."
    merge = true                     the built-in text first, then this one
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from clew.errors import UnreadableSource, UsageError
from clew.runs.fingerprint import RunDigest, field_hash
from clew.runs.review.glob import expand, matches
from clew.runs.review.question import VERSION

PROJECT_FILES = (".clew/rules.toml", ".clew/rules.json")
MAX_FILE_BYTES = 1 << 20


class PathRule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: patterns, a text, and whether the built-in text comes before it."""

    path: str | tuple[str, ...]
    text: str
    merge: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, one or several."""
        return (self.path,) if isinstance(self.path, str) else self.path


class Layer(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule file."""

    rule: tuple[PathRule, ...] = ()
    default: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class FileFilter(Struct, frozen=True):
    """Which files are looked at; no include means all."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class RuleSet(Struct, frozen=True):
    """All layers; an absent one is empty. `typed` is the filter of the command line, above all layers."""

    custom: Layer = Layer()
    project: Layer = Layer()
    user: Layer = Layer()
    built_in: Layer = Layer()
    typed: FileFilter = FileFilter()

    @property
    def layers(self) -> tuple[tuple[str, Layer], ...]:
        """The layers by name, highest first."""
        return (
            ("custom", self.custom),
            ("project", self.project),
            ("global", self.user),
            ("system", self.built_in),
        )


BUILT_IN = Layer(
    rule=(
        PathRule(
            ("**/test/**", "**/tests/**", "**/*_test.*", "**/test_*.*", "**/*.test.*", "**/*.spec.*"),
            "This is test code. Look for tests that cannot fail, assert the wrong thing, depend on order, time or"
            " chance, leave something behind, or no longer test what their name says.",
        ),
        PathRule(
            "**/*.sql",
            "Look for statements that lose or lock data, miss a condition, break on existing rows, cannot be rolled"
            " back, or put values into the text of a statement.",
        ),
        PathRule(
            ("**/*.{sh,bash,zsh}", "**/Dockerfile*", "**/Makefile", ".github/workflows/**"),
            "Look for unquoted expansions, ignored failures, commands that run on untrusted input, secrets that are"
            " printed or stored, and versions that are not pinned.",
        ),
        PathRule(
            "**/*.{md,rst,adoc,txt}",
            "This is documentation. Report only statements that are wrong, commands that cannot work, and broken"
            " references.",
        ),
    ),
    default=(
        "Look for defects: wrong results, crashes, missing checks of input, races, leaks of resources or secrets,"
        " errors that are swallowed, interfaces broken for their callers, and behaviour that the change does not"
        " seem to intend. Leave style to the formatter."
    ),
)


def load_layer(path: Path) -> Layer:
    """Returns the layer in a file; raises UnreadableSource, naming the place, when it is no rule file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise _unreadable(path, f"has more than {MAX_FILE_BYTES} bytes")
    try:
        if path.suffix == ".json":
            layer = msgspec.json.decode(data, type=Layer)
        else:
            layer = msgspec.convert(tomllib.loads(data.decode("utf-8")), Layer)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(path, f"does not parse: {error}") from error
    try:
        _check_patterns(layer)
    except UsageError as error:
        raise _unreadable(path, f"does not parse: {error.message}") from error
    return layer


def _load_found(path: Path) -> Layer:
    """Returns the layer in a file that nobody named: a pipe or a device there would be waited for without end."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from error
    if not regular:
        raise _unreadable(path, "is no file")
    return load_layer(path)


def _check_patterns(layer: Layer) -> None:
    patterns = [pattern for rule in layer.rule for pattern in rule.patterns]
    for pattern in (*patterns, *layer.include, *layer.exclude):
        matches(pattern, "x")
        expand(pattern)


def _unreadable(path: Path, why: str) -> UnreadableSource:
    return UnreadableSource(
        f"the rule file {path} {why}",
        code="rules_unreadable",
        hint="Mend it, or move it away; docs/runs.md shows its form.",
        path=str(path),
    )


def load_rules(root: Path, *, custom: Path | None, user: Path | None, typed: FileFilter) -> RuleSet:
    """Returns the rules that hold for a repository; raises UnreadableSource for a file that does not parse.

    `custom` must exist; `user` (the global file) and the project's may be absent. Two project files are refused.
    """
    for pattern in (*typed.include, *typed.exclude):
        matches(pattern, "x")
    present = [root / name for name in PROJECT_FILES if os.path.lexists(root / name)]
    if len(present) > 1:
        raise UsageError(
            f"there are two rule files in {root / '.clew'}: rules.toml and rules.json", hint="Keep one of them."
        )
    return RuleSet(
        custom=load_layer(custom) if custom is not None else Layer(),
        project=_load_found(present[0]) if present else Layer(),
        user=_load_found(user) if user is not None and os.path.lexists(user) else Layer(),
        built_in=BUILT_IN,
        typed=typed,
    )


def rule_for(rules: RuleSet, path: str) -> str:
    """Returns the text that holds for a path: the first match over all layers, merged with the built-in on request."""
    for name, layer in rules.layers:
        for rule in layer.rule:
            if any(matches(pattern, path) for pattern in rule.patterns):
                if rule.merge and name != "system":
                    return f"{_built_in_for(rules, path)}\n\n{rule.text}"
                return rule.text
        if layer.default:
            return layer.default
    return ""


def _built_in_for(rules: RuleSet, path: str) -> str:
    return rule_for(RuleSet(built_in=rules.built_in), path)


def file_filter(rules: RuleSet) -> FileFilter:
    """Returns the file filter of the highest layer that has any."""
    if rules.typed.include or rules.typed.exclude:
        return rules.typed
    for _, layer in rules.layers:
        if layer.include or layer.exclude:
            return FileFilter(layer.include, layer.exclude)
    return FileFilter()


def rules_digest(rules: RuleSet) -> RunDigest:
    """Returns the one digest over all layers in order, the form of the question, and the file filter.

    Order counts, because the first match wins. The digest can be blamed on a layer, not on a rule.
    """
    fields: list[str] = ["question", VERSION]
    for name, layer in rules.layers:
        for rule in layer.rule:
            for pattern in rule.patterns:
                fields += (name, "path", pattern, rule.text, "merge" if rule.merge and name != "system" else "")
        fields += (name, "default", "", layer.default, "")
    chosen = file_filter(rules)
    for role, patterns in (("include", chosen.include), ("exclude", chosen.exclude)):
        for pattern in patterns:
            fields += ("filter", role, pattern)
    return field_hash(*fields)
