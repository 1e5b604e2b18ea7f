"""Gives a test the driver of a real agent, or skips the test with the reason.

`CLEW_REQUIRE_AGENTS=1` makes an agent that is not installed a failure: where the agents are the judges, a run
that skips them has judged nothing.
"""

import os
from types import ModuleType
from typing import Literal

import pytest

from agents.install import AGENTS, find_agent
from agents.lab import claude, cline, codex, droid, gemini, grok, hermes, kimi, opencode, openhands, pi, qwen, vibe

__all__ = ["DRIVERS", "AgentName", "need_agent"]

AgentName = Literal[
    "claude",
    "cline",
    "codex",
    "droid",
    "gemini",
    "grok",
    "hermes",
    "kimi",
    "opencode",
    "openhands",
    "pi",
    "qwen",
    "vibe",
]

DRIVERS: dict[str, ModuleType] = {
    "claude": claude,
    "cline": cline,
    "codex": codex,
    "droid": droid,
    "gemini": gemini,
    "grok": grok,
    "hermes": hermes,
    "kimi": kimi,
    "opencode": opencode,
    "openhands": openhands,
    "pi": pi,
    "qwen": qwen,
    "vibe": vibe,
}
"""The drivers by the agent's short name; both have resume, fork, start, compact."""


def need_agent(agent: str) -> ModuleType:
    """Returns the driver of an agent that is installed; otherwise the test is skipped, or fails where it must
    run.
    """
    if find_agent(agent) is None:
        pin = AGENTS[agent]
        reason = f"{pin.package}@{pin.version} is not installed (python tests/agents/install.py {agent})"
        if os.environ.get("CLEW_REQUIRE_AGENTS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return DRIVERS[agent]
