"""Runs of live sessions that are killed at a named point, each in processes of its own.

`python -m crash_worker` reads one JSON object a line ({folder, spec, script, act}) and answers one; each run is a
forked process that arms the fault points and lives a whole life of a session. Nothing here asserts: the tests do.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from clew.errors import ClewError, InDoubt
from clew.host.fake import Script
from clew.platform import faults
from clew.verbs import release  # noqa: F401 - declares its points
from live_world import SESSION, World


def live(world: World, say: Any, *, end: str) -> None:
    """One whole life: attach, two messages, a renewal, and an end."""
    done = world.attach()
    seat = done.seat
    assert seat is not None, "a new operation is no replay"
    say({"attached": done.fence, "unconfirmed": list(done.unconfirmed)})
    for text in ("one", "two"):
        operation = world.leases.new_operation()
        say({"sending": operation, "text": text})
        try:
            sent = seat.send(text, operation)
        except InDoubt:
            say({"doubt": operation})
            seat.pump(0.2)
            return
        say({"sent": operation, "state": sent.state})
    seat.pump(0.2)
    seat.renew()
    say({"renewed": True})
    if end == "evict":
        os.kill(seat.child.process.pid, 9)
        while not seat.ended:
            seat.pump(0.5)
    else:
        seat.release()
    say({"ended": end})


def again(world: World, say: Any) -> None:
    """What the next process finds: attach, repeat every message that was ever made with its own id, say one more."""
    done = world.attach()
    seat = done.seat
    assert seat is not None, "a new operation is no replay"
    say({"attached": done.fence, "unconfirmed": list(done.unconfirmed)})
    say({"standings": {s.client_id: s.state for s in seat.journal.standings}})
    for told in world_asked(world.folder):
        try:
            sent = seat.send(told["text"], told["sending"])
            say({"repeated": told["sending"], "state": sent.state, "replayed": sent.replayed})
        except (ClewError, InDoubt) as error:
            say({"repeated": told["sending"], "refused": error.code})
    sent = seat.send("three")
    say({"sent": sent.client_id, "state": sent.state})
    seat.release()
    say({"ended": "release"})


def world_asked(folder: Path) -> list[dict[str, Any]]:
    """Returns the messages that the first life began to send."""
    return [told for told in said(folder, "live") if "sending" in told]


def said(folder: Path, act: str) -> list[dict[str, Any]]:
    """Returns what a life said before it ended, in order; a torn last line is what a kill left."""
    try:
        lines = (folder / f"{act}.said").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def run(order: dict[str, Any]) -> None:
    """Lives one life in this process; how far it came stands in a file, synced line by line."""
    folder = Path(order["folder"])
    fd = os.open(folder / f"{order['act']}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(value: dict[str, Any]) -> None:
        os.write(fd, (json.dumps(value) + "\n").encode())

    world = World(folder, msgspec.convert(order.get("script", {}), Script))
    faults.install(order.get("spec", ""))
    try:
        if order["act"] == "live":
            live(world, say, end=order.get("end", "release"))
        else:
            again(world, say)
    except ClewError as error:
        reason = error.concerns.get("reason")
        say({"refused": error.code, "reason": reason, "message": error.message})
        os._exit(3)
    except BaseException:
        say({"defect": traceback.format_exc()})
        os._exit(4)
    os._exit(0)


def main() -> None:
    """Answers orders until there are no more."""
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("act") == "points":
            print(json.dumps({"points": faults.points()}), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            run(order)
        _, status = os.waitpid(pid, 0)
        signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        print(json.dumps({"signal": signal, "status": code}), flush=True)


__all__ = ["SESSION", "main", "run", "said"]

if __name__ == "__main__":
    main()
