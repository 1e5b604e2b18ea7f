import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clew.cli import group as group_module
from clew.cli.main import TABLE, cli
from clew.errors import ClewError, Refused, UsageError


@pytest.fixture
def verb_that(monkeypatch):
    """Makes `clew ls` do something else, below its options."""

    def put(act):
        def ls(ctx, **options):
            return iter(act(ctx, **options) or ())

        monkeypatch.setattr("clew.verbs.ls.ls", ls)

    return put


def raising(error):
    def act(ctx, **options):
        raise error

    return act


def test_starting_loads_nothing_that_is_not_needed():
    program = (
        "import sys, clew.cli.main\n"
        "try: clew.cli.main.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "names = {m for m in sys.modules if m.split('.')[0] in ('rich', 'apsw', 'blake3', 'msgspec', 'platformdirs')}\n"
        "names |= {m for m in sys.modules if m.startswith(('clew.formats', 'clew.verbs', 'clew.store'))}\n"
        "names |= {m for m in sys.modules if m.startswith('clew.cli.')} - {\n"
        "    'clew.cli.main', 'clew.cli.group', 'clew.cli.settings', 'clew.cli.ending'}\n"
        "assert not names, names\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30, capture_output=True)


def test_help_lists_every_verb_without_loading_it(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    for name, lazy in TABLE.items():
        if lazy.here:
            assert f"  {name} " in result.stdout
            assert lazy.summary in result.stdout


def test_summaries_are_those_of_the_commands():
    for name, lazy in TABLE.items():
        if lazy.here:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            assert command.short_help == lazy.summary
            assert command.name == name


def test_without_a_verb_it_shows_the_help(invoke):
    result = invoke()
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: clew")


def test_version(invoke):
    assert invoke("--version").stdout == "clew 0.1.0\n"


def test_a_wrong_verb_names_the_nearest(invoke):
    result = invoke("shwo")
    assert result.exit_code == 2
    assert "Did you mean `clew show`?" in result.stderr
    assert result.stdout == ""
    assert "--help" in invoke("xyzzy").stderr
    assert "Did you mean `clew store check`?" in invoke("store", "chek").stderr


def test_an_optional_verb_that_is_missing_is_not_offered(invoke, monkeypatch):
    lazy = TABLE["run"]._replace(module="clew.cli.not_there")
    monkeypatch.setitem(cli.table, "run", lazy)
    assert " run " not in invoke("--help").stdout
    assert invoke("run").exit_code == 2


@pytest.mark.parametrize("words", [("--json", "ls"), ("ls", "--json"), ("ls", "--json", "--json")])
def test_global_options_on_either_side(invoke, verb_that, words):
    verb_that(lambda ctx, **options: [{"a": 1}])
    assert invoke(*words).stdout == '{"a":1}\n'


def test_the_later_one_of_two_wins(invoke, verb_that):
    seen = []
    verb_that(lambda ctx, **options: seen.append(ctx.data))
    invoke("--data", "/one", "ls", "--data", "/two", "--json")
    assert [str(path) for path in seen] == ["/two"]


def test_the_context_of_a_verb(invoke, verb_that, around, tmp_path):
    seen = []
    verb_that(lambda ctx, **options: seen.append(ctx))
    invoke("ls", "--json", env={"CODEX_HOME": "/x"})
    invoke("ls", "--json", "--root", str(tmp_path / "r"), "--store", "s", "--blobs", "b", env={"CODEX_HOME": "/x"})
    own, other = seen
    assert own.home.root == around.home
    assert own.home.env["CODEX_HOME"] == "/x"
    assert (own.cwd, own.data) == (around.cwd, tmp_path / "data")
    assert (other.home.root, dict(other.home.env)) == (tmp_path / "r", {})
    assert (other.store_url, other.blobs_url) == ("s", "b")
    assert other.env["HOME"] == str(tmp_path / "r")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClewError("x"), 1),
        (UsageError("x"), 2),
        (Refused("x"), 5),
        (KeyError("x"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
    ],
)
def test_statuses(invoke, verb_that, error, status):
    verb_that(raising(error))
    result = invoke("ls")
    assert result.exit_code == status
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    failure = json.loads(invoke("ls", "--json").stderr)["error"]
    assert failure["status"] == status
    assert set(failure) >= {"status", "code", "message", "hint"}


def test_an_unexpected_failure_is_one_line_and_a_traceback_on_demand(invoke, verb_that):
    verb_that(raising(KeyError("boo")))
    assert invoke("ls").stderr.startswith("clew: KeyError: 'boo'\n")
    assert "Traceback" in invoke("ls", "-v").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "--json", "--nothing"),
        ("ls", "--nothing", "--json"),
        ("--json", "shwo"),
        ("convert", "--json"),
        ("--color", "pink", "ls", "--json"),
        ("ls", "--limit", "x", "--json"),
        ("ls", "--agent", "nobody", "--json"),
    ],
)
def test_usage_errors_are_json_too(invoke, words):
    result = invoke(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert (error["status"], error["code"]) == (2, "usage")


def test_json_behind_two_dashes_is_not_ours(invoke):
    result = invoke("resume", "--nothing", "--", "--json")
    assert result.exit_code == 2
    assert not result.stderr.startswith("{")


def test_a_wrong_settings_file_is_a_usage_error(invoke, around):
    around.config_folder().mkdir()
    (around.config_folder() / "clew.toml").write_text("color = 1\n")
    result = invoke("ls")
    assert result.exit_code == 2
    assert "clew.toml" in result.stderr


def test_an_unknown_agent_names_the_known_ones(invoke):
    assert "claude" in invoke("ls", "--agent", "claud").stderr


def test_a_reader_who_leaves_early_is_no_failure():
    program = (
        "import sys, clew.verbs.ls\n"
        "from cli_samples import make_row\n"
        "clew.verbs.ls.ls = lambda ctx, **o: (make_row() for _ in range(100_000))\n"
        "from clew.cli.main import cli\n"
        "cli.main(['ls', '--root', sys.argv[1]])\n"
    )
    command = f"'{sys.executable}' -c \"$0\" /nonexistent | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command, program],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stdout.startswith("2026-11-20")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_one_failure(tmp_path: Path):
    for words, status in ((("agents",), 1), (("--help",), 1), (("show", "nosuch"), 3)):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "clew", "--root", tmp_path, "--data", tmp_path / "data", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(p for p in sys.path if p)},
            )
        assert (done.returncode, done.stderr.count("clew: "), "Traceback" in done.stderr) == (status, 1, False)


def test_session_text_in_a_failure_is_made_safe(invoke, verb_that):
    verb_that(raising(Refused("\x1b]52;c;x\x07", hint="\x1b[2J", path="\x9b")))
    for words in (("ls",), ("ls", "--json"), ("ls", "-v")):
        stderr = invoke(*words).stderr
        assert not any(char in stderr for char in "\x1b\x07\x9b")


def test_completion_offers_verbs_agents_and_sessions(around, monkeypatch):
    from cli_samples import make_row

    rows = [make_row(title="\x1b[2Jx"), make_row(id="$(rm -rf /)", short="$(rm")]
    monkeypatch.setattr("clew.verbs.ls.ls", lambda ctx, **options: iter(rows))

    def complete(line, number):
        env = {"_CLEW_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(number)}
        return CliRunner().invoke(cli, [], obj=around, env=env).stdout.split("\n")

    assert "plain,convert" in complete("clew con", 1)
    assert "plain,codex" in complete("clew ls --agent co", 3)
    assert "plain,--hidden" in complete("clew ls --hi", 2)
    offered = complete("clew show ''", 2)
    assert "plain,@" in offered
    assert "plain,86d7" in offered
    assert not any("rm" in line or "\x1b" in line for line in offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(invoke, shell):
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_CLEW_COMPLETE" in result.stdout


def test_the_guard_is_the_only_place_that_ends_the_process(invoke, verb_that):
    verb_that(raising(ClewError("x")))
    with pytest.raises(SystemExit):
        cli.main(["ls"], obj=None)
    assert group_module.INTERRUPTED == 130
