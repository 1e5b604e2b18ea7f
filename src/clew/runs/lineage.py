"""The lineage event of a resumed run: which run it goes on from, and by which provider and model each was done.

Source other than target *is* the transition; there is no field for the kind. Labels only: no key, header, endpoint,
path, diff, prompt or reply. An event of another schema is ignored whole.
"""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import Struct

SCHEMA = "clew.resume-lineage/v1"


class Target(Struct, frozen=True):
    """Who does the items of a run: a provider's label and a model's; empty when it has no name."""

    provider: str = ""
    model: str = ""


class ResumeLineage(Struct, frozen=True):
    """One event, for one resumed run; `agent` names the agent whose sessions do the items, if it is one."""

    run_id: str
    parent_run_id: str
    source: Target
    target: Target
    delta: bool = False
    parent_interrupted: bool = False
    agent: str = ""
    schema_version: str = SCHEMA

    @property
    def is_transition(self) -> bool:
        """Tells whether the run changed its provider or model on the way."""
        return self.source != self.target


def read_lineage(value: object) -> ResumeLineage | None:
    """Returns the event of a decoded JSON value; None when its schema is not known or it is none."""
    if not isinstance(value, dict):
        return None
    members = cast("dict[str, object]", value)
    if members.get("schema_version") != SCHEMA:
        return None
    try:
        return msgspec.convert(members, ResumeLineage)
    except msgspec.ValidationError:
        return None
