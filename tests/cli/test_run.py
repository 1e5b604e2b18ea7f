"""`clew run` as users meet it, with a small program that stands for the agent."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from clew.cli.settings import Surroundings
from clew.runs.active import ActiveLock
from runs.toys import tree_of

Invoke = Callable[..., Result]

AGENT = """#!{python}
import json, os, pathlib, sys
question = sys.stdin.read()
path = next(line[6:] for line in question.splitlines() if line.startswith("File: "))
told = pathlib.Path(os.environ["HOME"], "told")
told.open("a").write(path + "\\n")
broken = pathlib.Path(os.environ["HOME"], "broken")
if broken.exists() and path in broken.read_text().split():
    print(json.dumps({{"type": "result", "is_error": True, "result": "overloaded", "session_id": "s-x"}}))
    sys.exit(1)
finding = {{"text": "look at " + path, "severity": "major", "category": "bug", "start_line": 1}}
text = json.dumps({{"findings": [finding]}})
at = sys.argv.index("--session-id")
print(json.dumps({{"type": "result", "result": text, "session_id": sys.argv[at + 1],
                  "usage": {{"input_tokens": 5, "output_tokens": 2}}}}))
"""


class Repository:
    """A repository in the folder that the command line stands in, and the stand-in agent on PATH."""

    def __init__(self, around: Surroundings) -> None:
        self.root, self.home = around.cwd, around.home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(around.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        self.git("init", "-q", "-b", "main")
        self.commit({"a.py": "a = 1\n"})
        self.git("branch", "base")
        self.commit({"a.py": "a = 2\n", "b.py": "b = 1\n", "c.py": "c = 1\n"})

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ("git", "-C", str(self.root), *who, *arguments), env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            (self.root / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def told(self) -> list[str]:
        path = self.home / "told"
        return sorted(path.read_text().split()) if path.exists() else []

    def forget(self) -> None:
        (self.home / "told").unlink(missing_ok=True)

    def break_on(self, *paths: str) -> None:
        (self.home / "broken").write_text("\n".join(paths))


@pytest.fixture
def repository(around: Surroundings) -> Repository:
    return Repository(around)


@pytest.fixture
def run(around: Surroundings, invoke: Invoke, repository: Repository, tmp_path: Path) -> Invoke:
    """Runs `clew run ...` with the stand-in agent installed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text(AGENT.format(python=sys.executable))
        (programs / name).chmod(0o755)
    env = {**repository.environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def call(*words: str, **more: str) -> Result:
        return invoke("run", *words, env={**env, **more})

    return call


def data_of(result: Result) -> dict[str, object]:
    return json.loads(result.stdout)


def error_of(result: Result) -> dict[str, object]:
    return json.loads(result.stderr)["error"]


def test_a_review_interrupted_by_a_failure_and_resumed(run: Invoke, repository: Repository) -> None:
    repository.break_on("b.py")
    first = run("review", "--from", "base", "--agent", "claude", "--json")
    assert first.exit_code == 1, first.output
    told = data_of(first)
    assert told["state"] == "partial"
    assert [f["path"] for f in told["findings"]] == ["a.py", "c.py"]  # type: ignore[index, union-attr]
    assert told["spent"] == {"input_tokens": 10, "output_tokens": 4}
    assert repository.told() == ["a.py", "b.py", "c.py"]
    repository.forget()
    repository.break_on()
    second = run("resume", str(told["run"])[:8], "--json")
    assert second.exit_code == 0, second.output
    assert repository.told() == ["b.py"]
    again = data_of(second)
    assert again["state"] == "complete"
    assert len(again["findings"]) == 3  # type: ignore[arg-type]
    assert again["summary"]["parent_run_id"] == told["run"]  # type: ignore[index]


def test_the_texts_for_people(run: Invoke, repository: Repository) -> None:
    repository.break_on("b.py")
    done = run("review", "--from", "base", "--agent", "claude", "--jobs", "2")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("review ")
    assert "partial: 2 done, 1 failed, 2 findings, by agent:claude" in lines[0]
    assert "a.py" in lines
    assert "        1  major bug: look at a.py" in lines
    assert any(line.startswith("! failed  b.py  provider: claude gave no answer: overloaded") for line in lines)
    assert "1 item not done; go on: clew run resume " in done.stderr


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        *(("review", option) for option in ("--from", "--to", "--commit", "--agent", "--provider", "--model")),
        *(("review", option) for option in ("--endpoint", "--key-env", "--rules", "--include", "--exclude")),
        *(("review", option) for option in ("--language", "--waive", "--delta-from", "--cwd", "--output")),
        *(
            ("translate --from claude --to codex", option)
            for option in ("--cwd", "--model", "--delta-from", "--output")
        ),
        *(("resume x", option) for option in ("--agent", "--provider", "--model", "--cwd", "--waive")),
        *((verb, "--cwd") for verb in ("list", "delete x")),
        ("show x", "--output"),
    ],
)
def test_an_empty_name_is_refused_and_means_nothing_else(
    run: Invoke, repository: Repository, verb: str, option: str
) -> None:
    before = tree_of(repository.root.parent)
    done = run(*verb.split(), option, "", "--json")
    assert (done.exit_code, error_of(done)["status"]) == (2, 2), done.output
    assert f"{option} " in str(error_of(done)["message"])
    assert tree_of(repository.root.parent) == before
    assert repository.told() == []


@pytest.mark.parametrize(
    "option", ["--from", "--commit", "--model", "--provider", "--language", "--include", "--rules"]
)
def test_a_secret_that_is_typed_is_refused_since_what_is_typed_is_kept(
    run: Invoke, repository: Repository, option: str
) -> None:
    secret = "sk-ant-api03-" + "A" * 24
    before = tree_of(repository.root.parent)
    done = run("review", option, secret, "--json")
    assert done.exit_code == 2
    assert f"{option} holds what looks like a secret" in str(error_of(done)["message"])
    assert secret not in done.output
    assert tree_of(repository.root.parent) == before


def test_a_secret_in_the_reason_of_a_waiver_is_redacted(run: Invoke, repository: Repository) -> None:
    done = run("review", "--from", "base", "--agent", "claude", "--waive", "a.py=password=hunter2hunter2", "--json")
    assert done.exit_code == 0, done.output
    assert [i["reason"] for i in data_of(done)["manifest"]["coverage"]["waived"]] == ["password=[REDACTED]"]  # type: ignore[index]
    assert "hunter2" not in done.output
    assert not any(
        "hunter2" in text.decode()
        for text in tree_of(repository.root.parent).values()
        if isinstance(text, bytes) and b"run_start" in text
    )


def test_a_pattern_that_is_no_text_matches_its_files_and_is_resumed(run: Invoke, repository: Repository) -> None:
    (repository.root / os.fsdecode(b"caf\xe9.py")).write_text("x = 1\n")
    repository.commit({"d.py": "d = 1\n"})
    words = ("review", "--commit", "HEAD", "--agent", "claude", "--exclude", os.fsdecode(b"caf\xe9*"), "--json")
    done = data_of(run(*words))
    assert [item["path"] for item in done["items"]] == ["d.py"]  # type: ignore[index, union-attr]
    resumed = run("resume", str(done["run"]), "--json")
    assert resumed.exit_code == 0, resumed.output
    assert repository.told() == ["d.py"]


def test_a_report_goes_to_its_file_in_json_too(run: Invoke, repository: Repository) -> None:
    done = run("review", "--from", "base", "--agent", "claude", "--json", "--output", "told.json")
    assert (done.exit_code, done.stdout) == (0, "")
    told = json.loads((repository.root / "told.json").read_text())
    assert told["state"] == "complete"
    assert told["spent"]["input_tokens"] == 15


@pytest.mark.parametrize("output", [".", "nowhere/told.md"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_paid(
    run: Invoke, repository: Repository, output: str
) -> None:
    before = tree_of(repository.root.parent)
    done = run("review", "--from", "base", "--agent", "claude", "--output", output, "--json")
    assert done.exit_code == 2
    assert "the report cannot be written to" in str(error_of(done)["message"])
    assert repository.told() == []
    assert tree_of(repository.root.parent) == before


def test_a_disk_that_is_full_loses_the_log_and_not_the_report(
    run: Invoke, repository: Repository, tmp_path: Path
) -> None:
    words = ("run", "review", "--from", "base", "--agent", "claude", "--json", "--data", str(tmp_path / "data"))
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))"
    done = subprocess.run(
        (sys.executable, "-c", f"{limit}; runpy.run_module('clew', run_name='__main__')", *words),
        cwd=repository.root,
        env=repository.environment
        | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=60,
    )
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert "File too large" in told["delivery_error"]
    assert told["summary"]["findings"] == len(told["findings"]) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_run_in_good_order(
    run: Invoke, repository: Repository, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "bin" / "claude").write_text(
        f"#!{sys.executable}\nimport os, time\nos.kill(os.getppid(), {int(number)})\ntime.sleep(60)\n"
    )
    data = tmp_path / "data"
    words = ("run", "review", "--from", "base", "--agent", "claude", "--json", "--data", str(data))
    done = subprocess.run(
        (sys.executable, "-m", "clew", *words),
        cwd=repository.root,
        env=repository.environment | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr
    told = json.loads(done.stdout)
    assert told["manifest"]["run_failure"]["classification"] == "cancelled"
    assert not list((data / "checkouts").iterdir())


def test_the_settings_file_says_who_reviews_and_its_change_is_seen(
    run: Invoke, repository: Repository, around: Surroundings
) -> None:
    file = around.config_folder() / "clew.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[review]\nagent = "codex"\nmodel = "m-1"\njobs = 2\n')
    claude = data_of(run("review", "--from", "base", "--agent", "claude", "--json"))["manifest"]["execution"]  # type: ignore[index]
    assert (claude["provider"], claude["model"], claude["configured_concurrency"]) == ("agent:claude", "", 2)
    file.write_text('[review]\nagent = "claude"\nmodel = "m-1"\nagnet = "x"\n')
    assert "nothing here is called 'agnet'" in run("review", "--from", "base").stderr
    first = run("review", "--from", "base", "--json")
    assert data_of(first)["manifest"]["execution"]["model"] == "m-1"  # type: ignore[index]
    file.write_text('[review]\nagent = "claude"\nmodel = "m-2"\n')
    refused = run("resume", str(data_of(first)["run"]), "--json")
    assert (refused.exit_code, error_of(refused)["code"]) == (5, "model_changed")
    file.write_text("[review]\njobs = 99\n")
    assert run("review", "--from", "base").exit_code == 2


def test_the_configured_provider_or_model_may_not_change_unseen(run: Invoke, repository: Repository) -> None:
    first = data_of(run("review", "--from", "base", "--json", CLEW_REVIEW_AGENT="claude", CLEW_REVIEW_MODEL="m-1"))
    before = tree_of(repository.root.parent)
    model = run("resume", str(first["run"]), "--json", CLEW_REVIEW_AGENT="claude", CLEW_REVIEW_MODEL="m-2")
    assert model.exit_code == 5
    assert error_of(model)["code"] == "model_changed"
    assert "--model m-2" in str(error_of(model)["message"])
    agent = run("resume", str(first["run"]), "--json", CLEW_REVIEW_AGENT="codex", CLEW_REVIEW_MODEL="m-1")
    assert error_of(agent)["code"] == "provider_changed"
    assert "--agent codex" in str(error_of(agent)["message"])
    assert tree_of(repository.root.parent) == before
    typed = run("resume", str(first["run"]), "--model", "m-2", "--json", CLEW_REVIEW_AGENT="claude")
    assert typed.exit_code == 0, typed.output
    lineage = data_of(typed)["lineage"]
    assert lineage["target"] == {"provider": "agent:claude", "model": "m-2"}  # type: ignore[index]
    settings = repository.home / ".claude"
    settings.mkdir()
    (settings / "settings.json").write_text('{"model": "m-3"}')
    third = run("resume", str(first["run"]), "--json", CLEW_REVIEW_AGENT="claude")
    assert error_of(third)["code"] == "model_changed"


def test_what_was_typed_is_resolved_anew(run: Invoke, repository: Repository) -> None:
    first = data_of(run("review", "--from", "base", "--agent", "claude", "--exclude", "c.py", "--json"))
    assert [s["path"] for s in first["skipped"]] == ["c.py"]  # type: ignore[index, union-attr]
    assert run("resume", str(first["run"])).exit_code == 0
    repository.commit({"b.py": "b = 3\n"})
    moved = run("resume", str(first["run"]), "--json")
    assert (moved.exit_code, error_of(moved)["code"]) == (5, "input_changed")
    repository.forget()
    delta = run("review", "--from", "base", "--agent", "claude", "--exclude", "c.py", "--delta-from", str(first["run"]))
    assert delta.exit_code == 0, delta.output
    assert repository.told() == ["b.py"]


def test_a_waived_item_needs_a_reason(run: Invoke, repository: Repository) -> None:
    repository.break_on("b.py")
    first = data_of(run("review", "--from", "base", "--agent", "claude", "--json"))
    assert run("resume", str(first["run"]), "--waive", "b.py").exit_code == 2
    done = data_of(run("resume", str(first["run"]), "--waive", "b.py=vendored", "--json"))
    assert done["state"] == "complete"
    assert done["summary"]["waived"] == 1  # type: ignore[index]


def test_list_show_compare_delete(run: Invoke, repository: Repository, tmp_path: Path) -> None:
    first = data_of(run("review", "--from", "base", "--agent", "claude", "--exclude", "c.py", "--json"))
    second = data_of(run("review", "--from", "base", "--agent", "claude", "--json"))
    listed = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert {one["run_id"] for one in listed} == {first["run"], second["run"]}
    assert {one["state"] for one in listed} == {"complete"}
    assert str(first["run"]) in run("list").stdout
    shown = run("show", str(second["run"]))
    assert "look at c.py" in shown.stdout
    compared = json.loads(run("compare", str(first["run"]), str(second["run"]), "--json").stdout)
    assert {name: len(found) for name, found in compared.items()} == {
        "new": 1,
        "persisting": 2,
        "resolved": 0,
        "not_reviewed": 0,
    }
    assert "new: 1" in run("compare", str(first["run"]), str(second["run"])).stdout
    backwards = json.loads(run("compare", str(second["run"]), str(first["run"]), "--json").stdout)
    assert len(backwards["not_reviewed"]) == 1
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(("git", "init", "-q", str(elsewhere)), env=repository.environment, check=True)
    other = run("delete", str(first["run"]), "--cwd", str(elsewhere), "--json")
    assert (other.exit_code, error_of(other)["code"]) == (5, "run_other_repo")
    assert run("delete", str(first["run"])).exit_code == 0
    assert run("show", str(first["run"])).exit_code == 3


def test_reports_in_every_form(run: Invoke, repository: Repository) -> None:
    out = repository.root.parent / "review.sarif"
    done = run("review", "--from", "base", "--agent", "claude", "--format", "sarif", "--output", str(out))
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["version"] == "2.1.0"
    run_id = json.loads(run("list", "--json").stdout)["run_id"]
    assert run("show", run_id, "--format", "md").stdout.startswith(f"# Review {run_id}\n")
    assert json.loads(run("show", run_id, "--format", "json").stdout)["run"] == run_id
    assert json.loads(run("show", run_id, "--format", "sarif").stdout)["version"] == "2.1.0"
    assert json.loads(run("show", run_id, "--json").stdout)["manifest"]["run_id"] == run_id


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("review", "--from", "nowhere", "--agent", "claude"), 3, "ref_not_found"),
        (("review", "--agent", "claude"), 5, "nothing_selected"),
        (("review", "--from", "main", "--agent", "claude"), 5, "nothing_selected"),
        (("review", "--to", "main", "--agent", "claude"), 2, "usage"),
        (("review", "--from", "base", "--agent", "vim"), 2, "usage"),
        (("review", "--from", "base", "--agent", "claude", "--provider", "openai"), 2, "usage"),
        (("review", "--from", "base", "--provider", "openai"), 2, "usage"),
        (("review", "--from", "base", "--provider", "openai", "--model", "m"), 2, "usage"),
        (("review", "--from", "base", "--provider", "mine", "--model", "m"), 2, "usage"),
        (("review", "--from", "base", "--agent", "claude", "--include", "["), 5, "nothing_selected"),
        (("review", "--from", "base", "--agent", "claude", "--exclude", "{a,b}{a,b}{a,b}" * 4), 2, "usage"),
        (("review", "--from", "base", "--agent", "claude", "--rules", "missing.toml"), 6, "rules_unreadable"),
        (("review", "--from", "base", "--agent", "claude", "--delta-from", "nobody"), 3, "run_not_found"),
        (("review", "--from", "base", "--agent", "claude", "--cwd", "/"), 3, "no_repository"),
        (("resume", "nobody"), 3, "run_not_found"),
        (("resume", "../x"), 2, "run_id_invalid"),
        (("show", "nobody"), 3, "run_not_found"),
        (("compare", "nobody", "x"), 3, "run_not_found"),
        (("delete", "nobody"), 3, "run_not_found"),
        (("translate", "--from", "claude", "--to", "claude"), 2, "usage"),
        (("translate", "--from", "claude", "--to", "codex"), 5, "nothing_selected"),
    ],
)
def test_bad_input_has_one_message_its_status_and_creates_nothing(
    run: Invoke, repository: Repository, words: tuple[str, ...], status: int, code: str
) -> None:
    before = tree_of(repository.root.parent)
    done = run(*words, "--json")
    assert done.exit_code == status, done.output
    assert error_of(done)["code"] == code
    assert error_of(done)["message"]
    assert done.stdout == ""
    assert tree_of(repository.root.parent) == before


def test_a_rule_file_that_does_not_parse(run: Invoke, repository: Repository) -> None:
    (repository.root / ".clew").mkdir()
    (repository.root / ".clew" / "rules.toml").write_text("rule = [")
    done = run("review", "--from", "base", "--agent", "claude", "--json")
    assert (done.exit_code, error_of(done)["code"]) == (6, "rules_unreadable")


def test_an_active_parent_is_refused(run: Invoke, repository: Repository, tmp_path: Path) -> None:
    run_id = str(data_of(run("review", "--from", "base", "--agent", "claude", "--json"))["run"])
    [log] = (tmp_path / "data" / "runs").rglob("*.jsonl")
    with ActiveLock(log.with_suffix(".lock"), run_id):
        before = tree_of(tmp_path)
        done = run("resume", run_id, "--json")
        assert (done.exit_code, error_of(done)["code"]) == (5, "run_active")
        assert json.loads(run("list", "--json").stdout)["state"] == "complete"
        assert run("delete", run_id).exit_code == 5
        assert tree_of(tmp_path) == before


@pytest.mark.parametrize("part", [0, 0.05, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_parent_whose_log_is_cut_anywhere(run: Invoke, repository: Repository, tmp_path: Path, part: float) -> None:
    run_id = str(data_of(run("review", "--from", "base", "--agent", "claude", "--json"))["run"])
    [log] = (tmp_path / "data" / "runs").rglob("*.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole[: int(len(whole) * part)])
    before = tree_of(tmp_path)
    done = run("resume", run_id, "--json")
    assert done.exit_code in (0, 5), done.output
    if done.exit_code:
        assert error_of(done)["code"] in ("run_interrupted", "mode_changed")
        assert tree_of(tmp_path) == before
    else:
        assert data_of(done)["state"] == "complete"
    assert run("show", run_id).exit_code == 0
    assert run("list").exit_code == 0


def test_no_agent_at_all(run: Invoke, repository: Repository, tmp_path: Path) -> None:
    git = subprocess.run(("sh", "-c", "command -v git"), capture_output=True, check=True).stdout.decode().strip()
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "git").symlink_to(git)
    done = run("review", "--from", "base", "--json", PATH=str(tmp_path / "only"))
    assert (done.exit_code, error_of(done)["code"]) == (3, "agent_missing")


def test_an_empty_list_says_what_was_looked_at(run: Invoke, repository: Repository) -> None:
    done = run("list")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "no run of ~/" not in done.stderr
    assert "--all" in done.stderr
    assert run("list", "--json").stdout == ""
