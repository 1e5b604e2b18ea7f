"""Each command with its verb replaced: what it asks for, what it says, and its status."""

import json
import re
from pathlib import Path

import click
import pytest

from clew.cli.main import TABLE, cli
from clew.cli.words import FORBIDDEN
from clew.conversation.loss import Loss
from clew.errors import Refused
from clew.lineage.edge import StrandId
from clew.lineage.link import Fence
from clew.store.protocol import Problem
from clew.verbs.agents import AgentRow
from clew.verbs.attaching import AttachPlan
from clew.verbs.capture import Kept
from clew.verbs.doctor import Finding
from clew.verbs.keep import NotKept
from clew.verbs.log import Entry, LogStrand, ThreadLog
from clew.verbs.own import Owned
from clew.verbs.ps import Live
from clew.verbs.release import Plan, Released
from clew.verbs.restore import RestoredFiles
from clew.verbs.restored_store import RestoredStore
from clew.verbs.resume import Need, ResumePlan
from cli_samples import HOSTILE, make_converted, make_row, make_rows, make_shown

KEPT = Kept("claude", "86d7aaaa", 4, True, 412, 90_000, 2, "/home/dev/shop-api", "Fix the parser")
RESTORED = RestoredFiles(
    "claude", "86d7aaaa", 1, 4, "2026-11-02T10:00:00+00:00", 412, ("/home/dev/a.jsonl",), ("/home/dev/b",), "3f9a" * 16
)
PLAN = ResumePlan(("codex", "resume", "01a2", "x y"), "/home/dev/shop api", (), None, "codex", "01a2")
LOG = ThreadLog(
    "t0123456789abcdef",
    (LogStrand("s" * 24, "claude", "86d7aaaa", "86d7", "there", 41),),
    (Entry("s" * 24, "created", "2026-10-12T09:01:00.000Z", messages=41),),
    "s" * 24,
    "s" * 24,
    "s" * 24,
)
AGENT = AgentRow("claude", "Claude Code", True, 1204, True, True, "2.1.0", ("/home/dev/.claude/projects",))


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Replaces every verb; what each was asked for lies under its name, and `answers` can be changed by a test."""
    calls = {}
    answers = {
        "ls.ls": make_rows(),
        "show.show": make_shown(),
        "convert.convert": make_converted(),
        "resume.resume": PLAN,
        "resume.find_program": "/bin/agent",
        "restore.restore": RESTORED,
        "keep.keep": [KEPT],
        "agents.agents": [AGENT],
        "check_store.check_store": [],
        "restored_store.restored_store": RestoredStore("0" * 32, 1_000_004),
        "own.own_session": Owned(StrandId("s" * 24), Fence(1), "token"),
        "log.log": LOG,
        "ps.ps": [Live("claude", "86d7aaaa", "live", 4711, "h0", fence=3, cwd="/home/dev/shop-api")],
        "doctor.doctor": [Finding("note", "codex", "codex is not on PATH", "Install Codex.")],
        "attaching.plan_attach": AttachPlan("granted", "claude", "86d7aaaa", "s" * 24, 3, 4, ("reserved at fence 4",)),
        "release.plan_release": Plan("free", "claude", "86d7aaaa", "s" * 24, 3, "h0"),
        "release.release": Released("free", "claude", "86d7aaaa", 3, "pid_absent"),
    }

    def fake(name):
        def run(ctx, *args, **options):
            calls[name] = (*args, options)
            answer = answers[name]
            if isinstance(answer, Exception):
                raise answer
            return iter(answer) if name in ("ls.ls", "keep.keep", "check_store.check_store") else answer

        return run

    for name in answers:
        monkeypatch.setattr(f"clew.verbs.{name}", fake(name))
    monkeypatch.setattr("clew.cli.resume.execute", lambda *args: calls.__setitem__("exec", args))
    monkeypatch.setattr("os.chdir", lambda path: calls.__setitem__("chdir", path))
    calls["answers"] = answers
    return calls


def commands():
    """Yields every command with its words: `ls`, `store check`, ..."""
    context = click.Context(cli, info_name="clew")
    for name in TABLE:
        command = cli.get_command(context, name)
        if command is None or name == "run":
            continue
        yield (name,), command
        if isinstance(command, click.Group):
            for sub, inner in command.commands.items():
                yield (name, sub), inner


def examples():
    for words, command in [((), cli), *commands()]:
        for line in re.findall(r"^ *\$ clew(.*)$", command.help or "", re.MULTILINE):
            yield pytest.param(line, id=f"{' '.join(words)}:{line.strip()}")


@pytest.mark.parametrize("line", list(examples()))
def test_every_example_of_the_help_runs(invoke, line, asked):
    import shlex

    if "--in codex" in line or "--cwd" in line:
        asked["answers"]["resume.resume"] = PLAN
    words = shlex.split(line.partition(" > ")[0])
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr


def test_every_command_has_examples_and_help_for_every_option():
    for words, command in commands():
        help_text = command.help or ""
        assert "$ clew " + words[0] in help_text, words
        first = help_text.strip().splitlines()[0]
        assert first == command.short_help, words
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (words, parameter.name)
                assert parameter.help[0].isupper() or parameter.help.startswith("`"), (words, parameter.name)
                assert parameter.help.endswith("."), (words, parameter.name)


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_help_promises_what_nobody_can_promise(invoke, pattern):
    for words in [(), *(words for words, _ in commands())]:
        assert not re.search(pattern, invoke(*words, "--help").stdout, re.IGNORECASE)


# --- ls -------------------------------------------------------------------------------------------------------


def test_ls_writes_one_session_a_line(invoke):
    lines = invoke("ls").stdout.splitlines()
    assert len(lines) == len(make_rows())
    assert all(line.count("\t") == 6 for line in lines)


def test_ls_json_is_one_object_a_line(invoke):
    rows = [json.loads(line) for line in invoke("ls", "--json").stdout.splitlines()]
    wanted = {
        "agent",
        "id",
        "path",
        "cwd",
        "title",
        "created",
        "updated",
        "messages",
        "model",
        "state",
        "thread",
        "parent",
    }
    assert all(set(row) >= wanted for row in rows)


def test_ls_asks_for_what_was_said(invoke, asked, around):
    (around.cwd / "x").mkdir()
    invoke("ls", "--agent", "codex", "--cwd", "x", "--hidden", "--limit", "3")
    assert asked["ls.ls"] == (
        {"agent": "codex", "cwd": str(around.cwd / "x"), "every_folder": False, "hidden": True, "limit": 3},
    )


def test_a_windows_folder_is_taken_as_it_stands(invoke, asked):
    invoke("ls", "--cwd", r"C:\proj\x")
    assert asked["ls.ls"][0]["cwd"] == r"C:\proj\x"


def test_an_empty_list_says_what_was_looked_at(invoke, asked):
    asked["answers"]["ls.ls"] = []
    result = invoke("ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "/home/dev/.claude/projects" in result.stderr
    assert "--all" in result.stderr
    assert invoke("ls", "-q").stderr == ""


# --- show -----------------------------------------------------------------------------------------------------


def test_show_json_has_the_fields_of_the_contract(invoke):
    shown = json.loads(invoke("show", "86d7", "--json").stdout)
    assert set(shown) >= {"agent", "session_id", "cwd", "title", "model", "provider", "messages", "damage", "losses"}
    assert set(shown["messages"][1]) >= {
        "role",
        "text",
        "tool_calls",
        "tool_results",
        "key",
        "origin",
        "kind",
        "images",
    }


@pytest.mark.parametrize(
    ("words", "begin"), [((), "Read UTF-8"), (("--format", "md"), "# Read"), (("--format", "html"), "<!")]
)
def test_show_in_every_form(invoke, words, begin):
    assert invoke("show", *words).stdout.startswith(begin)


def test_show_asks_for_what_was_said(invoke, asked):
    invoke("show")
    assert asked["show.show"] == ("@", {"full": False, "branch": None})
    invoke("show", "codex:01a2", "--full", "--branch", "2")
    assert asked["show.show"] == ("codex:01a2", {"full": True, "branch": 2})


# --- convert --------------------------------------------------------------------------------------------------


def test_convert_tells_counts_and_what_is_kept(invoke):
    assert invoke("convert", "86d7", "--to", "codex").stdout.splitlines() == [
        "claude 86d7aaaa → codex 01a2bbbb",
        "→ codex has all 41 messages",
        "→ what codex cannot say: 12 reasoning blocks, 1 image: kept here",
        "  file  /home/dev/.codex/a.jsonl",
        "  go on cd /home/dev/shop-api && codex resume 01a2bbbb",
    ]


def test_convert_elsewhere_goes_on_there(invoke, tmp_path):
    words = ("convert", "86d7", "--to", "codex", "--root", str(tmp_path / "home"), "--out", str(tmp_path / "o"))
    line = invoke(*words).stdout.splitlines()[-1]
    assert line == f"  go on cd /home/dev/shop-api && HOME={tmp_path / 'o'} codex resume 01a2bbbb"


def test_convert_that_came_home(invoke, asked):
    asked["answers"]["convert.convert"] = make_converted(
        mode="prefix", restored_messages=41, rendered_messages=14, losses=(), warnings=("odd\x1b[2J",)
    )
    lines = invoke("convert", "--to", "codex").stdout.splitlines()
    assert lines[1] == "= 41 messages home byte for byte, 14 written from claude 86d7aaaa"
    assert lines[2] == "! odd␛[2J"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            {"mode": "whole", "restored_messages": 41, "rendered_messages": 0},
            "= codex has all 41 messages, byte for byte",
        ),
        (
            {"mode": "rebased", "restored_messages": 41, "rendered_messages": 2},
            "= a second session: 41 messages byte for",
        ),
        (
            {"invented": 1},
            '! 1 answer invented for calls without a result: codex needs one, so it reads "outcome unknown"',
        ),
        ({"losses": (Loss("records", 3, kept=""),)}, "! 3 records not kept: they cannot come home"),
    ],
)
def test_convert_in_words(invoke, asked, report, line):
    asked["answers"]["convert.convert"] = make_converted(**report)
    assert any(one.startswith(line) for one in invoke("convert", "--to", "codex").stdout.splitlines())


def test_convert_json_is_that_of_the_contract(invoke):
    done = json.loads(invoke("convert", "--to", "codex", "--json").stdout)
    assert set(done) >= {"from", "to", "resume", "report", "thread"}
    assert set(done["from"]) >= {"agent", "session_id", "path"}
    assert set(done["to"]) >= {"agent", "session_id", "cwd", "paths"}
    assert set(done["report"]) >= {"mode", "restored_messages", "rendered_messages", "losses", "warnings"}


def test_convert_asks_for_what_was_said(invoke, asked, around):
    invoke(
        *("convert", "x", "--to", "CODEX", "--cwd", "d", "--model", "m", "--out", "o"),
        *("--new", "--full", "--dry-run", "--strict"),
    )
    assert asked["convert.convert"] == (
        "x",
        {
            "to": "codex",
            "cwd": str(around.cwd / "d"),
            "model": "m",
            "out": around.cwd / "o",
            "new": True,
            "full": True,
            "dry_run": True,
            "strict": True,
        },
    )


def test_convert_that_is_refused_writes_the_four_lines(invoke, asked):
    asked["answers"]["convert.convert"] = Refused(
        "both went on after message 41", code="target_diverged", hint="--new makes a second session.", session="01a2"
    )
    result = invoke("convert", "--to", "codex")
    assert result.exit_code == 5
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["clew:", "where", "why", "do"]


# --- resume ---------------------------------------------------------------------------------------------------


def test_resume_becomes_the_agent(invoke, asked, monkeypatch):
    monkeypatch.setattr("os.path.isdir", lambda path: True)
    result = invoke("resume", "86d7", "--", "--verbose", "x")
    assert result.exit_code == 0
    assert asked["resume.resume"][1]["extra"] == ("--verbose", "x")
    program, argv, env = asked["exec"]
    assert (program, argv) == ("/bin/agent", PLAN.argv)
    assert asked["chdir"] == "/home/dev/shop api"
    assert env["HOME"].endswith("/home")
    assert result.stdout == ""


def test_resume_prints_a_line_for_a_shell(invoke, asked):
    asked["answers"]["resume.resume"] = ResumePlan(
        *PLAN.__class__.__struct_fields__[:0], PLAN.argv, PLAN.cwd, (Need("model", "a", "b"),)
    )
    result = invoke("resume", "--print", "--root", "/r s")
    assert result.stdout == "cd '/home/dev/shop api' && HOME='/r s' codex resume 01a2 'x y'\n"
    assert "! model: recorded a, now b (--accept model)" in result.stderr
    assert asked["resume.resume"][1]["dry_run"] is True
    assert "exec" not in asked


def test_resume_print_json_is_the_plan(invoke, asked):
    plan = json.loads(invoke("resume", "--print", "--json").stdout)
    assert plan["argv"] == list(PLAN.argv)
    assert set(plan) >= {"argv", "cwd", "needs"}


def test_resume_asks_for_what_was_said(invoke, asked):
    invoke("resume", "--in", "codex", "--model", "m", "--accept", "cwd", "--accept", "model")
    ref, options = asked["resume.resume"]
    assert ref == "@"
    assert (options["in_agent"], options["model"], options["accept"]) == ("codex", "m", ("cwd", "model"))
    assert options["dry_run"] is False


def test_an_agent_that_cannot_be_started(invoke, monkeypatch):
    def fail(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("clew.cli.resume.execute", fail)
    result = invoke("resume", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"]["code"] == "agent_missing"


# --- restore, keep, agents, store -----------------------------------------------------------------------------


def test_restore_says_what_came_home(invoke, asked, around):
    assert invoke("restore", "86d7", "--to", "t", "--capture", "1").stdout.splitlines() == [
        "claude 86d7aaaa",
        "= home byte for byte: 412 records, 2 files, digest 3f9a3f9a…",
        "  capture 1 of 4, taken 2026-11-02T10:00:00+00:00",
        "  file  /home/dev/a.jsonl",
        "  there /home/dev/b",
    ]
    assert asked["restore.restore"] == ("86d7", {"to": around.cwd / "t", "capture": 1})


def test_an_empty_folder_to_write_below_is_a_usage_error(invoke, asked):
    for words in (("restore", "x", "--to", ""), ("convert", "x", "--to", "codex", "--out", "")):
        assert invoke(*words).exit_code == 2
    for words in (
        ("ls",),
        ("convert", "x", "--to", "codex"),
        ("resume", "x"),
        ("run", "translate", "--from", "claude", "--to", "codex"),
    ):
        result = invoke(*words, "--cwd", "")
        assert (result.exit_code, "--cwd names no" in result.stderr) == (2, True), words
    for words in (("ls",), ("convert", "x", "--to", "codex"), ("resume", "x")):
        result = invoke(*words, "--cwd", "/tmp/a\udcff")
        assert (result.exit_code, "is no text" in result.stderr) == (2, True), words
    assert not {"restore.restore", "convert.convert", "ls.ls", "resume.resume"} & set(asked)


def test_keep_tells_a_store_that_failed_from_a_session_that_cannot_be_read(invoke, asked):
    asked["answers"]["keep.keep"] = [NotKept("codex", "01a2", "/x", {"status": 1, "message": "disk is full"})]
    result = invoke("keep")
    assert (result.exit_code, result.stdout) == (1, "1 session: 0 kept now, 0 unchanged, 1 not kept\n")


def test_keep_tells_what_is_new_and_counts_the_rest(invoke, asked):
    failed = NotKept("codex", "01a2", "/x", {"status": 6, "message": "torn\x1b[2J", "hint": "Look\x07."})
    old = Kept("claude", "9c1e", 2, False, 3, 4, 0)
    asked["answers"]["keep.keep"] = [KEPT, old, failed]
    result = invoke("keep")
    assert result.exit_code == 6
    assert result.stdout.splitlines() == [
        "claude 86d7aaaa  Fix the parser",
        "  = kept here: capture 4, 412 records, 2 side files",
        "3 sessions: 1 kept now, 1 unchanged, 1 unreadable",
    ]
    assert result.stderr == "! codex 01a2: torn␛[2J\n  Look␇.\n"
    body = json.loads(invoke("keep", "--json").stdout)
    assert (len(body["kept"]), len(body["not_kept"])) == (2, 1)


def test_keep_takes_sessions(invoke, asked):
    assert invoke("keep", "a", "codex:b").exit_code == 0
    assert asked["keep.keep"] == (("a", "codex:b"), {})


def test_keep_watch_goes_on_until_it_is_interrupted(invoke, asked, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", pause)
    old = Kept("claude", "9c1e", 2, False, 3, 4, 0)
    failed = NotKept("codex", "01a2", "/x", {"status": 6, "message": "torn"})
    asked["answers"]["keep.keep"] = [KEPT, old, failed]
    result = invoke("keep", "--watch", "--json")
    assert result.exit_code == 130
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["session_id"] for line in lines] == ["86d7aaaa", "01a2", "86d7aaaa", "86d7aaaa"]


def test_agents(invoke):
    assert invoke("agents").stdout == "claude\tClaude Code\tyes\t1,204\tread write\t2.1.0\t/home/dev/.claude/projects\n"
    assert json.loads(invoke("agents", "--json").stdout)["agents"][0]["name"] == "claude"


def test_a_sound_store(invoke):
    result = invoke("store", "check")
    assert (result.exit_code, result.stdout) == (0, "all of clew's own data agrees with its digests\n")
    assert json.loads(invoke("store", "check", "--json").stdout) == {"problems": []}


def test_a_damaged_store(invoke, asked):
    asked["answers"]["check_store.check_store"] = [Problem("segment_digest", "x\x1b", 3)]
    result = invoke("store", "check")
    assert result.exit_code == 1
    assert result.stdout == "! segment digest: x␛ (capture 3)\n"
    assert invoke("store", "check", "--json").exit_code == 1


def test_store_without_a_verb_is_a_usage_error(invoke):
    assert invoke("store").exit_code == 2


# --- hostile --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("show", "--full"),
        ("show", "--format", "md"),
        ("show", "--format", "html"),
        ("convert", "--to", "codex"),
        ("resume", "--print"),
        ("restore",),
        ("keep",),
        ("agents",),
        ("store", "check"),
    ],
)
@pytest.mark.parametrize("extra", [(), ("--json",), ("--color", "always"), ("-v",)])
def test_nothing_of_a_hostile_session_leaves(invoke, asked, words, extra):
    h = HOSTILE
    answers = asked["answers"]
    answers["ls.ls"] = [make_row(agent=h, id=h, title=h, cwd=h, updated=h, short=h, detail=h, state=h)]
    answers["show.show"] = make_shown(title=h, cwd=h, agent=h, model=h, session_id=h, thread=h, state=h)
    converted = make_converted(losses=(Loss(h, 2, h, h),), warnings=(h,))
    answers["convert.convert"] = type(converted)(
        type(converted.from_)(h, h, h, h), type(converted.to)(h, h, h, h, (h,)), converted.resume, converted.report, h
    )
    answers["resume.resume"] = ResumePlan((h, h), h, (Need(h, h, h),), answers["convert.convert"])
    answers["restore.restore"] = RestoredFiles(h, h, 1, 1, h, 1, (h,), (h,), h)
    answers["keep.keep"] = [Kept(h, h, 1, True, 1, 1, 1, h, h), NotKept(h, h, h, {"message": h, "status": 6})]
    answers["agents.agents"] = [AgentRow(h, h, True, 1, True, True, h, (h,), h)]
    answers["check_store.check_store"] = [Problem(h, h)]
    result = invoke(*words, *extra)
    assert result.exit_code in (0, 1, 6), result.stderr
    text = re.sub("\x1b\\[(?:0|1|2|31|32|33|34|35|36)m", "", result.stdout + result.stderr)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b\ufeff\u2028\U000e0041]", text)


def test_the_home_is_written_as_a_tilde_only_where_it_is_the_home(invoke, asked, around):
    path = str(Path(around.home) / "x.jsonl")
    asked["answers"]["restore.restore"] = RestoredFiles("claude", "a", 1, 1, "", 1, (path,), (), "d" * 64)
    assert "  file  ~/x.jsonl\n" in invoke("restore").stdout
    assert f"  file  {path}\n" in invoke("restore", "--root", "/r").stdout


def test_what_was_made_so_that_the_agent_lists_a_session_is_told_apart(invoke, asked):
    asked["answers"]["restore.restore"] = RestoredFiles(
        "gemini", "a", 1, 1, "", 1, ("/h/a.jsonl",), (), "d" * 64, listed=("/h/.project_root",)
    )
    text = invoke("restore").stdout
    assert "1 record, 1 file," in text
    assert text.endswith("  file  /h/a.jsonl\n  index /h/.project_root\n")
    assert json.loads(invoke("restore", "--json").stdout)["listed"] == ["/h/.project_root"]
