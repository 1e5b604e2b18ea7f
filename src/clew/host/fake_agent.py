"""A scripted agent for tests: a real process with its own durable history, and no model behind it.

Speaks JSON lines on its standard streams. Keeps `history.jsonl`-like items (what it would show after a restart) and,
apart from it, a log of every delivery, both synced before it answers. Imports nothing of clew: it is started as
another program would be. The script (one JSON object) says whether it echoes client ids, where it dies, whether it is
silent, and whether it outlives its standard input.
"""

# ruff: noqa: T201
from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from typing import Any


def main(history: str, deliveries: str, script_text: str) -> None:
    """Serves one conversation until its standard input ends."""
    script: dict[str, Any] = json.loads(script_text)
    if script.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        if asked["type"] == "open":
            _open(asked, history, script)
        elif asked["type"] == "send":
            _receive(asked, history, deliveries, script)
        elif asked["type"] == "interrupt":
            _say({"type": "turn_ended"})
    while script.get("outlives"):
        time.sleep(0.05)


def _open(asked: dict[str, Any], history: str, script: dict[str, Any]) -> None:
    _maybe_die(script, "before-handshake")
    there = os.path.exists(history)  # noqa: PTH110
    if not there:
        _keep(history, {"own_id": "session", "role": "session", "text": "", "client_id": None})
    origin = "resumed" if asked["resume"] else "created"
    token = script.get("token", os.environ.get("CLEW_SPAWN_TOKEN"))
    _say({"type": "opened", "session": asked["session"], "origin": origin, "token": token})
    _maybe_die(script, "after-handshake")


def _receive(asked: dict[str, Any], history: str, deliveries: str, script: dict[str, Any]) -> None:
    _maybe_die(script, "on-receive")
    if asked["text"].startswith("reject"):
        _say({"type": "rejected", "client_id": asked["client_id"], "reason": "not now"})
        return
    _keep(deliveries, {"client_id": asked["client_id"]})
    _maybe_die(script, "before-record")
    own_id = uuid.uuid4().hex
    echoed = asked["client_id"] if script.get("echo", True) else None
    _keep(history, {"own_id": own_id, "role": "user", "text": asked["text"], "client_id": echoed})
    _maybe_die(script, "recorded")
    if script.get("silent"):
        return
    _say({"type": "accepted", "client_id": asked["client_id"], "own_id": own_id})
    _maybe_die(script, "answered")
    reply = {"own_id": uuid.uuid4().hex, "role": "agent", "text": f"heard {asked['text']}", "client_id": None}
    _keep(history, reply)
    _say({"type": "item", **reply})
    _say({"type": "turn_ended"})


def _keep(path: str, value: dict[str, Any]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (json.dumps(value) + "\n").encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _say(value: dict[str, Any]) -> None:
    try:
        print(json.dumps(value), flush=True)
    except BrokenPipeError:
        os._exit(0)


def _maybe_die(script: dict[str, Any], point: str) -> None:
    if script.get("die") == point:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:4])
