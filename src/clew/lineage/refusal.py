"""The refusals of this room: five codes, each with a sentence on what is wrong and what to do about it.

Promises that every refusal of the room carries one of `HANDLE_CODES` and a hint. Does not decide anything.
"""

from __future__ import annotations

from typing import Final

from clew.errors import LeaseError

INVALID: Final = "handle_invalid"
PROVIDER_MISMATCH: Final = "handle_provider_mismatch"
STALE_FENCE: Final = "handle_stale_fence"
FORKED: Final = "handle_forked"
CHAIN_OVERFLOW: Final = "handle_chain_overflow"

HANDLE_CODES: Final = (INVALID, PROVIDER_MISMATCH, STALE_FENCE, FORKED, CHAIN_OVERFLOW)

HINTS: Final = {
    INVALID: "Nothing was recorded; read the agent's session again and repeat the step.",
    PROVIDER_MISMATCH: "Resume it in the agent it belongs to, or convert it first.",
    STALE_FENCE: "Somebody took the session over meanwhile; reload it and try again.",
    FORKED: "The agent went on in another conversation; record that one as a fork.",
    CHAIN_OVERFLOW: "Close this chain and start a new one that adopts the conversation.",
}


def refuse(code: str, message: str, **concerns: object) -> LeaseError:
    """Returns the refusal `code`, ready to be raised; `code` is one of HANDLE_CODES."""
    return LeaseError(message, code=code, hint=HINTS[code], **concerns)


def invalid(message: str, **concerns: object) -> LeaseError:
    """Returns the refusal `handle_invalid` with this message, ready to be raised."""
    return refuse(INVALID, message, **concerns)
