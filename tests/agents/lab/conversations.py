"""The scripted conversations of the fixtures: one function a case, for all agents that can be asked the same.

Everything said here is invented for this project.
"""

import base64
import re
from collections.abc import Callable
from typing import Any

from agents.lab import more_cases, opencode_cases
from agents.lab.packed import compress
from agents.lab.pictures import png
from agents.lab.process import wait_for
from agents.lab.recorder import Recorder, Recording
from agents.lab.script import Call, Reasoning, Step, Text, calls, say
from agents.lab.scrub import SUMMARY_END, SUMMARY_START

__all__ = ["CASES", "FOLDER"]

FOLDER = {"unicode": "fil d'Ariane π 漢字", "interrupted-tool": "spindle", "forked-mid": "forks"}
"""Working folders that are not simply the case's name."""


def simple(lab: Recorder) -> Recording:
    """Three turns of text, the first with reasoning."""
    script = [
        Step([Reasoning("The word is old."), Text("A clew is a ball of thread.")]),
        say("Theseus laid it out behind him.\n\nSo he found the way:\n- in by the thread\n- out by the thread"),
        say("Ariadne gave it to him."),
    ]
    prompts = ["Good morning. What is a clew?", "What was it for?", "Thanks. Whose idea was it?"]
    session = lab.hold(prompts, script)
    return Recording(session, str(lab.cwd), lab.said(), notes="Text alone; reasoning before the first answer.")


def tools(lab: Recorder) -> Recording:
    """A call with its result, parallel calls that end in another order, a failing one, an edit, a new file."""
    kit = lab.kit
    path = str(lab.file("thread.py", 'LENGTH = 7\n\nprint("thread", LENGTH)\n'))
    lab.file("knots.txt", "bowline\nreef\n")
    script = [
        calls(kit.shell("ls && cat thread.py", "ToolsList01"), text="I look first.", reasoning="What is there?"),
        calls(kit.read(path, "ToolsRead02")),
        calls(kit.edit(path, "LENGTH = 7", "LENGTH = 9", "ToolsEdit03"), reasoning="Seven is too short."),
        calls(
            kit.shell("sleep 0.7; cat knots.txt", "ToolsSlow04"),
            kit.shell("head -n 1 thread.py", "ToolsFast05"),
            kit.shell("cat no-such-file.txt", "ToolsFail06"),
            text="Three checks at once.",
        ),
        calls(kit.write(str(lab.cwd / "notes.md"), "# Notes\n\n- longer thread\n", "ToolsMake07")),
        calls(kit.shell("python3 thread.py; exit 4", "ToolsExit08")),
        say("Done: the thread is 9 long; no-such-file.txt is missing."),
    ]
    session = lab.hold(["Make the thread longer, check it, and write notes.md."], script)
    return Recording(
        session,
        str(lab.cwd),
        lab.said(),
        notes="One turn: three parallel calls (the first ends last, the third fails), an edit, a new file, an exit 4.",
    )


ODD_TEXT = (
    "Tab\there, CRLF\r\nthere; "
    "emoji 🧵🧶 👩‍🚀 🏳️‍🌈; 糸玉 실타래 線; right to left: חוט خيط; combining e\u0301 Z\u0351\u036b; "
    "astral 𝕔𝕝𝕖𝕨; \u2028 and \u2029 and \u0085; no-break\u00a0space; BOM \ufeff; private \ue000; "
    "ANSI \x1b[31mred\x1b[0m; DEL \x7f; written out: \\u0041 \\n \\\\ \"quoted\" 'so' </tag> &amp; {{x}} ${y}"
)

LONG_LINE = "".join(f"{number:04d} to and fro, " for number in range(1200))
"""A line of 20 kB."""


def unicode(lab: Recorder) -> Recording:
    """Texts that break careless readers: in prompts, in answers, in arguments, in results; a zero byte; a long line."""
    odd = r"printf 'one\r\ntwo \033[1mbold\033[0m 糸 \342\200\250 not UTF-8: \377\376 end\n'; printf 'חוט\n'"
    shell = lab.kit.shell(odd, "OddBytes01")
    script = [
        say(f"You said: {ODD_TEXT}"),
        say("A zero \u0000 comes back. " + "Ωμέγα " * 10),
        calls(shell, text="Ich drucke … 🖨️\u2028"),
        say(" Leading and trailing blanks. \n\n"),
    ]
    # these take a prompt as an argument
    zero = "" if lab.agent in ("grok", "hermes", "kimi", "openhands") else "\u0000 "
    prompts = [ODD_TEXT, f"A zero {zero}and a long line: {LONG_LINE}", "Print odd bytes."]
    session = lab.hold(prompts, script)
    return Recording(session, str(lab.cwd), lab.said(), notes="CJK, emoji, RTL, U+2028, ANSI, CRLF, NUL, 20 kB a line.")


def surrogate(lab: Recorder) -> Recording:
    """Halves of surrogate pairs: in a text and in arguments (Codex takes them in arguments only)."""
    shell = lab.kit.shell("echo half \ud83e of one", "HalfPair01")
    script = [calls(shell, text="I print it."), say("Printed.")]
    prompts = ["Print half of a sign."]
    if lab.agent == "claude":
        script.append(say("Half a pair: \ud83e, the other half: \uddf5, whole: 🧵."))
        prompts.append("Say half of a sign.")
    session = lab.hold(prompts, script)
    notes = "Lone surrogates stand escaped in the file; in expected each is U+FFFD, as Claude Code sends it."
    return Recording(session, str(lab.cwd), lab.said(), notes=notes)


SUMMARY = f"{SUMMARY_START} Theseus holds the thread; knots.txt has two knots, bowline and reef. {SUMMARY_END}"


def compacted(lab: Recorder) -> Recording:
    """Two turns, a compaction on request, one more turn."""
    lab.file("knots.txt", "bowline\nreef\n")
    kit = lab.kit
    summary = f"{SUMMARY} " + "The thread goes on. " * 40 if lab.agent == "grok" else SUMMARY  # it refuses a short one
    aside = say(f"<summary>\n{SUMMARY}\n</summary>" if lab.agent == "claude" else summary, when="summary|handoff")
    lab.asides.append(aside)
    script = [
        calls(kit.shell("cat knots.txt", "KnotsCat01"), text="I read it."),
        say("Two knots: bowline and reef."),
        say("No sheepshank there."),
    ]
    options = {"commands": True} if lab.agent == "claude" else {}
    with lab.open([*script, aside], **options) as session:
        session.say("Which knots are in knots.txt?")
        session.say("Is there a sheepshank?")
        before = lab.said()
        session.say("/compact") if lab.agent == "claude" else session.compact()
        session.model.extend([say("After the compaction I still know two knots.")])
        session.say("What do you still know?")
        session.close()
        after = lab.said()
    start = next(number for number, one in enumerate(after) if SUMMARY_START in one["text"])
    return Recording(
        session.session_id,
        str(lab.cwd),
        after,
        [*before, after[start], *(one for one in after[start + 1 :] if one not in before)],
        notes="expected is what the model knows after the compaction, expected_full everything that was said.",
    )


def interrupted(lab: Recorder) -> Recording:
    """Killed while the second answer streams: nothing of it is recorded."""
    with lab.open([say("Ready."), say("So it began. " * 60, hang_after=6)]) as session:
        session.say("Get ready.")
        session.send("Tell the long story of the thread.")
        wait_for(session.model.hanging.is_set, "the stream to stand still")
        wait_for(lambda: _has_prompt(lab, "Tell the long story"), "the prompt to be recorded")
        session.kill()
    return Recording(session.session_id, str(lab.cwd), lab.said(), notes="SIGKILL in the middle of a streamed answer.")


def _has_prompt(lab: Recorder, text: str) -> bool:
    for record in lab.records():
        if record.get("type") in ("user", "message") and text in str((record.get("message") or {}).get("content")):
            return True
        if record.get("type") == "response_item" and text in str(record["payload"].get("content")):
            return True
        if record.get("type") == "context.append_message" and text in str(record["message"]):
            return True
    return lab.agent not in ("claude", "codex", "pi", "kimi") and text in lab.text()


def interrupted_tool(lab: Recorder) -> Recording:
    """Killed while one of three parallel calls still runs."""
    kit = lab.kit
    lab.file("spindle.txt", "turning\n")
    asked = calls(
        kit.shell("echo first", "KillFirst01"),
        kit.shell("tail -f spindle.txt", "KillTail02"),
        kit.shell("echo third", "KillThird03"),
        text="Three at once.",
    )
    # pi, Droid and Qwen Code keep results back until the last call has ended, Gemini CLI the calls as well
    known = {"codex": ("KillFirst01",), "kimi": ("KillFirst01",), "pi": (), "droid": (), "qwen": (), "gemini": ()}
    done = known.get(lab.agent, ("KillFirst01", "KillThird03"))
    with lab.open([asked]) as session:
        session.send("Spin three threads.")
        wait_for(lambda: ("Three at once." if lab.agent == "gemini" else "KillTail02") in lab.text(), "the calls")
        wait_for(lambda: all(_result(lab, call) is not None for call in done), "the quick calls' results")
        if lab.agent == "codex":  # it writes the third one's end as an event, and its output only behind the second's
            wait_for(lambda: _has_ended(lab, "KillThird03"), "the third call's end")
        session.kill()
    messages = lab.said()
    if lab.agent == "gemini":
        messages[-1]["tool_calls"] = []
    for call in messages[-1]["tool_calls"]:
        text = _result(lab, call["id"])
        if text is not None:
            found = {"call_id": call["id"], "text": text, "is_error": None if lab.agent in FLAGLESS else False}
            messages[-1]["tool_results"].append(found)
    return Recording(session.session_id, str(lab.cwd), messages, notes="SIGKILL while the second of three calls ran.")


FLAGLESS = ("grok", "kimi", "qwen")
"""Agents whose model is told of a failure by the text alone."""


def _has_ended(lab: Recorder, call: str) -> bool:
    payloads = [record["payload"] for record in lab.records() if record.get("type") == "event_msg"]
    return any(one["type"] == "item_completed" and one["item"]["id"].endswith(call) for one in payloads)


def _result(lab: Recorder, call: str) -> str | None:
    for record in lab.records():
        if record.get("type") == "user" and isinstance((record.get("message") or {}).get("content"), list):
            for block in record["message"]["content"]:
                if str(block.get("tool_use_id")).endswith(call):
                    return str(block["content"])
        if record.get("type") == "message" and str((record.get("message") or {}).get("toolCallId")).endswith(call):
            return "".join(block["text"] for block in record["message"]["content"])
        if record.get("type") == "tool_result" and str(record.get("tool_call_id")).endswith(call):
            return str(record["content"])
        event = record.get("event") or {}
        if event.get("type") == "tool.result" and event["toolCallId"].endswith(call):
            seconds = event["result"]["durationMs"] / 1000  # it says this before what it kept
            return f"Wall time: {seconds:.3f} seconds\n{event['result']['output']}"
        payload = record.get("payload") or {}
        if payload.get("type") == "function_call_output" and payload["call_id"].endswith(call):
            return str(payload["output"])
    return None


def stopped(lab: Recorder) -> Recording:
    """Stopped by the user while the second answer streams, then one more turn."""
    script = [say("At your service."), say("Once there was a thread. " * 40, hang_after=8), say("Then I stop.")]
    with lab.open(script) as session:
        session.say("Hello.")
        session.send("Tell a story without an end.")
        wait_for(session.model.hanging.is_set, "the stream to stand still")
        wait_for(lambda: _has_prompt(lab, "without an end"), "the prompt to be recorded")
        session.interrupt()
        session.say("Never mind.")
        session.close()
    return Recording(session.session_id, str(lab.cwd), lab.said(), notes="Interrupted by request, then one more turn.")


def forked(lab: Recorder) -> Recording:
    """A session, and a fork of it that goes another way; then the first goes on as well."""
    kit = lab.kit
    lab.file("left.txt", "the minotaur\n")
    first = lab.hold(["Which way?"], [say("Left or right?")])
    again = lab.open(
        [calls(kit.shell("cat left.txt", "ForkLeft01"), text="Left."), say("A bad way.")], resume=first, fork=True
    )
    with again as session:
        session.say("Go left.")
        session.close()
        fork, expected = session.session_id, lab.said()
    with lab.open([say("Right it is.")], resume=first) as session:
        session.say("Go right.")
        session.close()
    original = {"session_id": first, "expected": {"messages": lab.said()}}
    return Recording(
        fork,
        str(lab.cwd),
        expected,
        notes="session_id is the fork; original went on after it was forked.",
        more={"forked_from": first, "original": original},
    )


def resumed(lab: Recorder) -> Recording:
    """One session in three processes."""
    kit = lab.kit
    lab.file("log.txt", "day one\n")
    session_id = lab.hold(["Day one: begin."], [say("Noted: day one.")])
    steps = [
        [calls(kit.shell("wc -l log.txt", "DayTwo01"), text="I count."), say("One line.")],
        [say("Noted: day three.")],
    ]
    for prompt, script in zip(["Day two: how long is log.txt?", "Day three: end."], steps, strict=True):
        with lab.open(script, resume=session_id) as session:
            session.say(prompt)
            session.close()
    return Recording(session_id, str(lab.cwd), lab.said(), notes="The same session resumed twice, in new processes.")


def bigoutput(lab: Recorder) -> Recording:
    """A result that is too long to be kept whole in the session."""
    shell = lab.kit.shell("seq -f 'row %g of the long cloth' 1 1500", "LongCloth01")
    session = lab.hold(["Print the long cloth."], [calls(shell), say("1500 rows.")])
    notes = "The result is longer than what the agent keeps in the session; Claude Code keeps all of it in a side file."
    return Recording(session, str(lab.cwd), lab.said(), notes=notes)


def image(lab: Recorder) -> Recording:
    """An image in a prompt, and one as a tool's result."""
    kit = lab.kit
    path = lab.cwd / "dot.png"
    path.write_bytes(png(30, 60, 220))
    if lab.agent == "opencode":
        (lab.cwd / "typed.png").write_bytes(png(200, 30, 40))
        prompt: Any = ["Which colour is the thread?", str(lab.cwd / "typed.png")]
    else:
        prompt = kit.image("Which colour is the thread?", "image/png", base64.b64encode(png(200, 30, 40)).decode())
    script = [say("Red."), calls(kit.look(str(path), "LookDot01")), say("Blue.")]
    session = lab.hold([prompt, "And which is dot.png?"], script)
    return Recording(session, str(lab.cwd), lab.said(), notes="One image typed by the user, one that a tool returned.")


def claude_subagent(lab: Recorder) -> Recording:
    """A helper with a conversation of its own."""
    lab.file("knots.txt", "bowline\nreef\nsheepshank\n")
    task = "HELPER TASK: count the lines of knots.txt."
    arguments = {
        "description": "Count lines",
        "prompt": task,
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    helper = [
        calls(lab.kit.shell("wc -l knots.txt", "HelperWc02"), when="HELPER TASK"),
        say("The helper counted 3 lines.", when=r"\b3 knots\.txt"),
    ]
    lab.asides += helper
    main = [calls(Call("Agent", arguments, "toolu_01CallHelper01"), text="I ask a helper."), say("It has 3 lines.")]
    session = lab.hold(["Let a helper count the lines of knots.txt."], [*main, *helper], tools="Bash,Read,Task")
    return Recording(
        session, str(lab.cwd), lab.said(), notes="A helper's own records lie in subagents/ beside the session."
    )


def codex_subagent(lab: Recorder) -> Recording:
    """A helper with a thread of its own."""
    lab.file("knots.txt", "bowline\nreef\nsheepshank\n")
    space = "multi_agent_v1"
    helper = [
        calls(lab.kit.shell("wc -l knots.txt", "HelperWc02"), when="HELPER TASK"),
        say("The helper counted 3 lines.", when=r"\b3 knots\.txt"),
    ]
    lab.asides += helper

    def wait(body: Any) -> Step:
        outputs = "".join(str(item["output"]) for item in body["input"] if "output" in item)
        found = re.search(r'"agent_id": ?"([0-9a-f-]+)"', outputs)
        if found is None:
            return say(f"No helper: {outputs}")
        arguments = {"targets": [found[1]], "timeout_ms": 20000}
        return calls(Call("wait_agent", arguments, "call_WaitHelper03", space))

    spawn = Call("spawn_agent", {"message": "HELPER TASK: count the lines of knots.txt."}, "call_CallHelper01", space)
    script = [calls(spawn, text="I ask a helper."), wait, say("It has 3 lines.")]
    session = lab.hold(["Let a helper count the lines of knots.txt."], [*script, *helper])
    return Recording(
        session, str(lab.cwd), lab.said(), notes="The helper is a thread of its own, in a file of its own."
    )


def checkpointed(lab: Recorder) -> Recording:
    """Edits with file checkpoints."""
    path = str(lab.file("knots.txt", "bowline\nreef\n"))
    kit = lab.kit
    script = [
        calls(kit.read(path, "CheckRead01")),
        calls(kit.edit(path, "reef", "reef\nsheepshank", "CheckEdit02")),
        say("Added."),
        calls(kit.write(str(lab.cwd / "new.txt"), "thread\n", "CheckNew03")),
        say("Written."),
    ]
    prompts = ["Add sheepshank.", "Write new.txt."]
    session = lab.hold(prompts, script, CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING="1")
    return Recording(session, str(lab.cwd), lab.said(), notes="With the agent's file checkpoints in file-history/.")


def forked_mid(lab: Recorder) -> Recording:
    """A thread taken back to before its second turn: two files of one thread."""
    script = [say("One."), say("Two."), say("Three."), say("Two once more.")]
    with lab.open(script) as session:
        for prompt in ("Say one.", "Say two.", "Say three."):
            session.say(prompt)
        before = lab.said()
        session.revert(session.turns[1])
        session.say("Say two once more.")
        session.close()
    more = {"reverted": {"messages": before}}
    notes = "The thread was reverted to before its second turn; `reverted` is what was said until then."
    return Recording(session.session_id, str(lab.cwd), lab.said(), notes=notes, more=more)


def codemode(lab: Recorder) -> Recording:
    """A model that calls one tool, whose input is a program."""
    lab.file("knots.txt", "bowline\nreef\n")
    program = "const found = await tools.exec_command({cmd: 'cat knots.txt'});\ntext(found.output);\n"
    script = [calls(Call("exec", program, "call_Program01"), reasoning="One look."), say("Two knots.")]
    session = lab.hold(["Which knots are there?"], script, name="gpt-6-sol")
    notes = "A model of the newer sort (code mode): a custom tool call whose result is a list of texts."
    return Recording(session, str(lab.cwd), lab.said(), notes=notes)


def zstd_rollout(lab: Recorder) -> Recording:
    """A thread whose file is compressed, as Codex does with old ones (here by the recorder)."""
    recording = simple(lab)
    for path in list(lab.home.rglob("rollout-*.jsonl")):
        path.with_name(path.name + ".zst").write_bytes(compress(path.read_bytes()))
        path.unlink()
    recording.notes = "The case simple, compressed by the recorder; the agent unpacks it when it resumes."
    return recording


Conversation = Callable[[Recorder], Recording]

SHARED: dict[str, Conversation] = {
    "simple": simple,
    "tools": tools,
    "unicode": unicode,
    "compacted": compacted,
    "interrupted": interrupted,
    "interrupted-tool": interrupted_tool,
    "stopped": stopped,
    "forked": forked,
    "image": image,
    "resumed": resumed,
    "bigoutput": bigoutput,
}

CASES: dict[str, dict[str, Conversation]] = {
    "claude": SHARED | {"subagent": claude_subagent, "checkpointed": checkpointed, "surrogate": surrogate},
    "codex": SHARED
    | {
        "subagent": codex_subagent,
        "forked-mid": forked_mid,
        "codemode": codemode,
        "zstd": zstd_rollout,
        "surrogate": surrogate,
    },
    "grok": {
        "simple": simple,
        "tools": tools,
        "unicode": unicode,
        "resumed": resumed,
        "forked": forked,
        "compacted": compacted,
        "interrupted": interrupted,
        "interrupted-tool": interrupted_tool,
        "image": more_cases.image,
        "subagent": more_cases.subagent,
    },
    "kimi": {
        "simple": simple,
        "tools": tools,
        "unicode": unicode,
        "resumed": resumed,
        "forked": forked,
        "compacted": more_cases.compacted,
        "interrupted": interrupted,
        "interrupted-tool": interrupted_tool,
        "image": more_cases.image,
        "subagent": more_cases.subagent,
    },
    "pi": {name: SHARED[name] for name in SHARED if name not in ("bigoutput",)},
    "cline": {"simple": simple, "tools": tools, "resumed": resumed},  # its prompts are typed
    "droid": {
        "simple": simple,
        "tools": tools,
        "unicode": unicode,
        "resumed": resumed,
        "image": image,
        "interrupted": interrupted,
        "interrupted-tool": interrupted_tool,
    },
    "vibe": {"simple": simple, "tools": tools, "resumed": resumed},  # it takes prompts as arguments: no zero bytes
    "hermes": {"simple": simple, "tools": tools, "unicode": unicode, "resumed": resumed},
    "gemini": {
        "simple": simple,
        "tools": tools,
        "resumed": resumed,
        "compacted": more_cases.compacted,
        "interrupted": interrupted,
        "interrupted-tool": interrupted_tool,
        "image": more_cases.image,
        "subagent": more_cases.subagent,
    },
    "qwen": {
        "simple": simple,
        "tools": tools,
        "unicode": unicode,
        "resumed": resumed,
        "forked": more_cases.forked,
        "compacted": more_cases.compacted,
        "interrupted": interrupted,
        "interrupted-tool": interrupted_tool,
        "image": more_cases.image,
        "subagent": more_cases.subagent,
    },
    "openhands": {"simple": simple, "tools": tools, "unicode": unicode},  # slow
    "opencode": {
        "simple": simple,
        "tools": tools,
        "unicode": unicode,
        "resumed": resumed,
        "forked": forked,
        "image": image,
        "compacted": opencode_cases.compacted,
        "reverted": opencode_cases.reverted,
        "subagent": opencode_cases.subagent,
        "interrupted-tool": opencode_cases.interrupted_tool,
    },
}
"""The cases by agent and name."""
