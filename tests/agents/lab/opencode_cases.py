"""The scripted conversations that only OpenCode can be asked for in this way: through its server, or killed."""

import re
import subprocess

from agents.lab import opencode
from agents.lab.model import FakeModel
from agents.lab.process import end_tree, wait_for
from agents.lab.recorder import Recorder, Recording
from agents.lab.script import Call, Step, calls, say
from agents.lab.scrub import SUMMARY_END, SUMMARY_START

__all__ = ["compacted", "interrupted_tool", "reverted", "subagent"]

SUMMARY = f"{SUMMARY_START} Theseus holds the thread; knots.txt has two knots, bowline and reef. {SUMMARY_END}"


def compacted(lab: Recorder) -> Recording:
    """Two turns, a compaction on request, one more turn."""
    lab.file("knots.txt", "bowline\nreef\n")
    script = [
        calls(lab.kit.shell("cat knots.txt", "KnotsCat01"), text="I read it."),
        say("Two knots: bowline and reef."),
        say("No sheepshank there."),
    ]
    session = lab.hold(["Which knots are in knots.txt?", "Is there a sheepshank?"], script)
    before = lab.said()
    opencode.compact(lab.home, lab.cwd, session, [Step(say(SUMMARY).parts, when=".", repeat=True)])
    with lab.open([say("After the compaction I still know two knots.")], resume=session) as again:
        again.say("What do you still know?")
    after = lab.said()
    start = next(number for number, one in enumerate(after) if SUMMARY_START in one["text"])
    full = before + after[max(start - 1, 0) :]
    notes = "expected is what the model knows after the compaction, expected_full everything that was said."
    return Recording(session, str(lab.cwd), after, full, notes=notes)


def reverted(lab: Recorder) -> Recording:
    """Three turns, of which the last is taken back: it stands in the rows until the next prompt."""
    session = lab.hold(
        ["Which way?", "Go left.", "Go right."], [say("Left or right?"), say("A wall."), say("The minotaur.")]
    )
    gone = lab.said()[-2:]
    with FakeModel() as model, opencode.Server(lab.home, lab.cwd, model) as server:
        messages = server.call("GET", f"/session/{session}/message")
        users = [one["info"]["id"] for one in messages if one["info"]["role"] == "user"]
        server.call("POST", f"/session/{session}/revert", {"messageID": users[-1]})
    expected = [one for one in lab.said() if one not in gone]
    more = {"reverted": {"messages": gone}}
    return Recording(session, str(lab.cwd), expected, notes="The third turn was taken back.", more=more)


def subagent(lab: Recorder) -> Recording:
    """A helper with a session of its own."""
    lab.file("knots.txt", "bowline\nreef\nsheepshank\n")
    task = "HELPER TASK: count the lines of knots.txt."
    arguments = {"description": "Count lines", "prompt": task, "subagent_type": "general"}
    helper = [
        calls(lab.kit.shell("wc -l knots.txt", "HelperWc02"), when="HELPER TASK"),
        say("The helper counted 3 lines.", when=r"\b3 knots\.txt"),
    ]
    lab.asides += helper
    script = [*helper, calls(Call("task", arguments, "call_HelperTask01"), text="I ask."), say("Three knots.")]
    session = lab.hold(["Ask a helper how many knots there are."], script)
    notes = "The helper's own session is in the database as well (parent_id)."
    return Recording(session, str(lab.cwd), lab.said(), notes=notes)


def interrupted_tool(lab: Recorder) -> Recording:
    """Killed while the second of three parallel calls still runs."""
    kit = lab.kit
    lab.file("spindle.txt", "turning\n")
    asked = calls(
        kit.shell("echo first", "KillFirst01"),
        kit.shell("touch started; tail -f spindle.txt", "KillTail02"),
        kit.shell("echo third", "KillThird03"),
        text="Three at once.",
    )
    session = lab.hold(["Get ready."], [say("Ready.")])
    before = lab.said()
    with FakeModel([asked]) as model:
        opencode.configure(lab.home, model.url)
        child = subprocess.Popen(
            [str(opencode.binary()), "run", "--session", session],
            cwd=lab.cwd,
            env=opencode.environment(lab.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert child.stdin is not None
            child.stdin.write(b"Spin three threads.")
            child.stdin.close()
            wait_for((lab.cwd / "started").exists, "the second call to run", 120)
            wait_for(lambda: _completed(lab, session) >= 1, "the quick calls' results", 30)
        finally:
            end_tree(child)
    answer = {"role": "assistant", "text": "Three at once.", "tool_results": [], "images": []}
    names = ("KillFirst01", "KillTail02", "KillThird03")
    arguments = [part.arguments for part in asked.parts if isinstance(part, Call)]
    answer["tool_calls"] = [
        {"id": f"call_{name}", "name": "bash", "arguments": given} for name, given in zip(names, arguments, strict=True)
    ]
    answer["tool_results"] = _results(lab, session)
    asking = {"role": "user", "text": "Spin three threads.", "tool_calls": [], "tool_results": [], "images": []}
    notes = "SIGKILL while the second of three calls ran."
    return Recording(session, str(lab.cwd), [*before, asking, answer], notes=notes)


def _tools(lab: Recorder, session: str) -> list[dict[str, str]]:
    import contextlib
    import json
    import sqlite3

    path = lab.home / ".local" / "share" / "opencode" / "opencode.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT data FROM part WHERE session_id = ? ORDER BY id", (session,)).fetchall()
    parts = [json.loads(row[0]) for row in rows]
    return [
        {"id": part["callID"], "status": part["state"]["status"], "output": part["state"].get("output", "")}
        for part in parts
        if part["type"] == "tool" and re.search("Kill", part["callID"])
    ]


def _completed(lab: Recorder, session: str) -> int:
    return sum(tool["status"] == "completed" for tool in _tools(lab, session))


def _results(lab: Recorder, session: str) -> list[dict[str, object]]:
    return [
        {"call_id": tool["id"], "text": tool["output"], "is_error": False}
        for tool in _tools(lab, session)
        if tool["status"] == "completed"
    ]
