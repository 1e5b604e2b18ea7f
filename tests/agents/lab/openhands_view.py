"""Run by OpenHands' own Python: prints what the agent would send its model of each conversation, one line each.

    python openhands_view.py FOLDER ...

Only the agent's own classes are used: its state, its log of events, its view of them. No model is asked.
"""

import json
import sys
from pathlib import Path

import openhands.tools.preset.default  # noqa: F401 (its kinds of events)
from openhands.sdk.context.view import View
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.conversation.state import ConversationState
from openhands.sdk.event.base import LLMConvertibleEvent
from openhands.sdk.io import LocalFileStore

HOW = {
    "cache_enabled": False,
    "vision_enabled": True,
    "function_calling_enabled": True,
    "force_string_serializer": False,
    "send_reasoning_content": True,
}


def look(folder: Path) -> dict[str, object]:
    """Returns what is sent, how many actions would be run at once, and the id."""
    state = ConversationState.model_validate_json((folder / "base_state.json").read_text("utf-8"))
    log = EventLog(LocalFileStore(str(folder)))
    events = list(log)
    assert len(events) == len(log) == len(list((folder / "events").glob("event-*.json")))
    view = View.from_events(events)
    messages = LLMConvertibleEvent.events_to_messages(view.events)
    pending = ConversationState.get_unmatched_actions(events)
    sent = [message.to_chat_dict(**HOW) for message in messages]
    return {"id": str(state.id), "events": len(events), "pending": len(pending), "messages": sent}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("=" + json.dumps(look(Path(name))), flush=True)
