"""Admission: may this command go on from that run? Every check in its order; the first that fails decides.

`find_differences` gives all rows that fail, lowest first; `admit` raises RunError for the first and names the others.
Neither writes anything. Input, rules and repository can never be accepted away; provider and model by typing them on
this very command.

    row  code                    what differs
    a    resume_mode             the asked mode is none, or cannot be resumed
    b    mode_changed            the parent has no mode, another one, or one that is not known
    1    run_interrupted         no manifest and never closed
    2    run_without_manifest    no manifest, though closed
    3    manifest_schema         a schema that this version does not know
    4    operation_changed
    5    nothing_selected        the parent selected nothing
    6    input_mode_changed      the manifest's mode
    7    repository_changed
    8    input_changed           unless delta
    9    rules_unverifiable      the parent recorded no digest of its rules
    10   rules_changed
    11   provider_changed        unless asked for on this command
    12   model_changed           unless asked for on this command, or brought by an asked-for provider
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from clew.errors import RunError
from clew.runs.lineage import Target
from clew.runs.manifest import SCHEMA, Manifest
from clew.runs.reason import sanitise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clew.runs.checkpoints import RunState

AGENT_PREFIX = "agent:"
"""What a provider's label begins with when the items are done in an agent's sessions."""


class Identity(Struct, frozen=True):
    """What a run would record, found out before it exists; digests of absent things are empty."""

    operation: str
    mode: str
    source_artifact_sha256: str
    rule_config_sha256: str
    repository_sha256: str = ""


class Asked(Struct, frozen=True):
    """What a command asks for: its identity, who is to do the items, and what of it was typed on this very command.

    `modes` tells for each mode of the operation whether it can be resumed, `resumable_hint` how to name such a mode.
    """

    identity: Identity
    target: Target
    modes: Mapping[str, bool]
    explicit_provider: bool = False
    explicit_model: bool = False
    delta: bool = False
    resumable_hint: str = ""


class Difference(Struct, frozen=True):
    """One row of the table that fails: the field, as the parent recorded it and as it is now."""

    row: str
    code: str
    message: str
    hint: str
    field: str = ""
    recorded: str | None = None
    now: str | None = None


START_ANEW = "Start a new run."


def find_differences(parent: RunState, asked: Asked) -> tuple[Difference, ...]:
    """Returns the rows that fail, lowest first; none means admitted."""
    found = [*_mode_rows(parent, asked)]
    manifest = parent.vouched
    if manifest is None:
        return (*found, _no_manifest(parent))
    return (*found, *_input_rows(manifest, parent, asked), *_rule_rows(manifest, asked), *_target_rows(manifest, asked))


def admit(parent: RunState, asked: Asked) -> None:
    """Raises RunError when `asked` may not go on from `parent`: the lowest row decides, all are named."""
    differences = find_differences(parent, asked)
    if not differences:
        return
    first, others = differences[0], differences[1:]
    message = f"run {parent.run_id} cannot be resumed: {first.message}"
    if others:
        message += f" (and {len(others)} more: {', '.join(other.code for other in others)})"
    raise RunError(
        message,
        code=first.code,
        hint=first.hint,
        run=parent.run_id,
        row=first.row,
        differences=[
            {"row": d.row, "code": d.code, "field": d.field, "recorded": d.recorded, "now": d.now} for d in differences
        ],
    )


def _mode_rows(parent: RunState, asked: Asked) -> Iterator[Difference]:
    mode = asked.identity.mode
    if not mode or asked.modes.get(mode) is False:
        named = f"mode {mode}" if mode else "no mode"
        wants = asked.resumable_hint or "a mode whose input can be named again"
        yield Difference(
            row="a",
            code="resume_mode",
            message=f"{named} was asked for; resuming requires {wants}",
            hint=f"Ask for {wants}, or start a new run.",
            field="mode",
            now=mode,
        )
    recorded = parent.mode
    if not recorded:
        message, hint = "it recorded no mode", START_ANEW
    elif recorded not in asked.modes:
        message, hint = f"its mode {recorded!r} is not supported here", f"Use the clew that made it. {START_ANEW}"
    elif recorded != mode:
        message = f"it ran in mode {recorded}, and {mode or 'no mode'} was asked for"
        hint = f"Ask for mode {recorded}. {START_ANEW}"
    else:
        return
    yield Difference("b", "mode_changed", message, hint, "mode", recorded, mode)


def _no_manifest(parent: RunState) -> Difference:
    if parent.schema_version and parent.schema_version != SCHEMA:
        return _schema_row(parent.schema_version)
    if parent.closed:
        return Difference(
            row="2",
            code="run_without_manifest",
            message="it closed without a run manifest: it is older than manifests, or failed before one was made",
            hint=START_ANEW,
            field="manifest",
        )
    before = parent.start.resumed_from if parent.start is not None else ""
    return Difference(
        row="1",
        code="run_interrupted",
        message="it was interrupted before it closed or sealed its input, so the input cannot be verified",
        hint=f"Resume run {before} again." if before else START_ANEW,
        field="manifest",
    )


def _schema_row(version: str) -> Difference:
    return Difference(
        row="3",
        code="manifest_schema",
        message=f"its manifest has the schema {sanitise(version)}, and this clew knows {SCHEMA}",
        hint=f"Use the clew that made it. {START_ANEW}",
        field="schema_version",
        recorded=version,
        now=SCHEMA,
    )


def _input_rows(manifest: Manifest, parent: RunState, asked: Asked) -> Iterator[Difference]:
    identity = asked.identity
    if manifest.schema_version != SCHEMA:
        yield _schema_row(manifest.schema_version)
    if manifest.operation != identity.operation:
        yield Difference(
            row="4",
            code="operation_changed",
            message=f"it is a run of {manifest.operation}, and {identity.operation} was asked for",
            hint=f"Resume it as a run of {manifest.operation}.",
            field="operation",
            recorded=manifest.operation,
            now=identity.operation,
        )
    if not manifest.coverage.selected:
        message = "it selected nothing, so there is nothing to resume"
        yield Difference("5", "nothing_selected", message, START_ANEW, "selected", "0")
    was, now = manifest.input.mode, identity.mode
    if was != now:
        message = f"its input was of mode {was or 'none'}, and now it is of mode {now or 'none'}"
        yield Difference("6", "input_mode_changed", message, f"Ask for mode {was}.", "input.mode", was, now)
    was, now = manifest.repository.identity_sha256, identity.repository_sha256
    if was != now:
        where = f" It ran in {parent.start.cwd}." if parent.start is not None and parent.start.cwd else ""
        message, hint = "this is not the repository it worked on", f"Resume it in its own repository.{where}"
        yield Difference("7", "repository_changed", message, hint, "repository", was, now)
    was, now = manifest.input.source_artifact_sha256, identity.source_artifact_sha256
    # An unknown artifact (empty) is a difference even from another unknown one.
    if not asked.delta and (was != now or not now):
        message = "its input changed: a ref points elsewhere, or another set of items is selected"
        hint = f"Start a new run that takes over what is still the same: --delta-from {parent.run_id}."
        yield Difference("8", "input_changed", message, hint, "source_artifact", was, now)


def _rule_rows(manifest: Manifest, asked: Asked) -> Iterator[Difference]:
    was, now = manifest.execution.rule_config_sha256, asked.identity.rule_config_sha256
    if not was:
        message = "it recorded no digest of its rules, so they cannot be verified against the current rules"
        yield Difference("9", "rules_unverifiable", message, START_ANEW, "rules", was, now)
    elif was != now:
        message = (
            "its rules changed: a text of the custom, project, global or system layer, or the file filter differs"
            " (one digest covers all, so it cannot say which)"
        )
        yield Difference("10", "rules_changed", message, f"Put the rules back. {START_ANEW}", "rules", was, now)


def _target_rows(manifest: Manifest, asked: Asked) -> Iterator[Difference]:
    source, target = manifest.execution, asked.target
    if source.provider != target.provider:
        if asked.explicit_provider:
            return
        stay, change = _provider_flag(source.provider), _provider_flag(target.provider)
        message = f"it was done by provider {_named(source.provider)}, and now it would be {_named(target.provider)}"
        yield Difference(
            row="11",
            code="provider_changed",
            message=f"{message}; pass `{change}` to do it on purpose",
            hint=f"Pass `{change}` to change on purpose, or `{stay}` to stay.",
            field="provider",
            recorded=source.provider,
            now=target.provider,
        )
    elif source.model != target.model and not (asked.explicit_model or asked.explicit_provider):
        was, now = _named(source.model), _named(target.model)
        yield Difference(
            row="12",
            code="model_changed",
            message=f"it was done by model {was}, and now it would be {now}; pass `--model {now}` to do it on purpose",
            hint=f"Pass `--model {now}` to change on purpose, or `--model {was}` to stay.",
            field="model",
            recorded=source.model,
            now=target.model,
        )


def _named(label: str) -> str:
    return sanitise(label) if label else "<name>"


def _provider_flag(label: str) -> str:
    if label.startswith(AGENT_PREFIX):
        return f"--agent {_named(label.removeprefix(AGENT_PREFIX))}"
    return f"--provider {_named(label)}"
