"""Who reviews where it is not typed: the environment, then `[review]` of clew.toml."""

from pathlib import Path

import pytest

from clew.cli.run_settings import ReviewSettings, review_settings
from clew.errors import UsageError

FILE = """
color = "never"
[review]
agent = "claude"
model = "opus"
jobs = 3
timeout = 60.5
budget = 1000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clew.toml"
    path.write_text(FILE)
    return path


def test_nothing_is_said(tmp_path: Path) -> None:
    assert review_settings({}, {}, tmp_path / "clew.toml") == ReviewSettings()


def test_option_before_environment_before_file(file: Path) -> None:
    assert review_settings({}, {}, file) == ReviewSettings(
        agent="claude", model="opus", jobs=3, timeout=60.5, budget=1000
    )
    env = {"CLEW_REVIEW_MODEL": "sonnet", "CLEW_REVIEW_JOBS": "5", "CLEW_REVIEW_TIMEOUT": ""}
    told = review_settings({"budget": 7}, env, file)
    assert told == ReviewSettings(agent="claude", model="sonnet", jobs=5, timeout=60.5, budget=7)
    assert review_settings({"model": "haiku", "jobs": 1}, env, file)[:6] == ("claude", "", "haiku", "", "", 1)


@pytest.mark.parametrize("words", [{"agent": "codex"}, {"provider": "openai"}])
def test_another_one_brings_its_own_model_address_and_key(file: Path, words: dict[str, str]) -> None:
    env = {"CLEW_REVIEW_PROVIDER": "house", "CLEW_REVIEW_ENDPOINT": "https://h/v1", "CLEW_REVIEW_KEY_ENV": "K"}
    told = review_settings(words, env, file)
    assert (told.agent, told.provider, told.model, told.endpoint, told.key_env) == (
        words.get("agent", ""), words.get("provider", ""), "", "", "",
    )  # fmt: skip
    assert told.jobs == 3, "how much is done at once belongs to nobody"
    house = review_settings({}, env | {"CLEW_REVIEW_MODEL": "m"}, file)
    assert house[:5] == ("", "house", "m", "https://h/v1", "K")


def test_the_same_one_named_again_keeps_its_model(file: Path) -> None:
    assert review_settings({"agent": "claude"}, {}, file).model == "opus"
    assert review_settings({}, {"CLEW_REVIEW_AGENT": "claude"}, file).model == "opus"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("review = 3", "is a table"),
        ("[review]\nmodel = 3", "model is a text"),
        ("[review]\njobs = 0", "jobs is a number from 1 to 64"),
        ("[review]\njobs = 65", "jobs"),
        ("[review]\njobs = true", "jobs"),
        ("[review]\njobs = 1.5", "jobs"),
        ("[review]\ntimeout = 0.5", "from 1"),
        ("[review]\ntimeout = nan", "timeout"),
        ("[review]\ntimeout = inf", "from 1 to 1e+07"),
        ("[review]\nbudget = 2000000000000000", "budget"),
        ('[review]\nbudget = "many"', "budget"),
        ('[review]\nagent = "a"\nprovider = "b"', "both an agent and a provider"),
    ],
)
def test_a_wrong_value_is_told_with_its_file(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "clew.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"clew\.toml") as caught:
        review_settings({}, {}, path)
    assert word in caught.value.message


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"CLEW_REVIEW_JOBS": "many"}, "CLEW_REVIEW_JOBS"),
        ({"CLEW_REVIEW_JOBS": "0"}, "CLEW_REVIEW"),
        ({"CLEW_REVIEW_AGENT": "a", "CLEW_REVIEW_PROVIDER": "b"}, "both an agent and a provider"),
    ],
)
def test_a_wrong_variable_is_told(tmp_path: Path, env: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        review_settings({}, env, tmp_path / "clew.toml")


def test_both_typed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both an agent and a provider"):
        review_settings({"agent": "a", "provider": "b"}, {}, tmp_path / "clew.toml")


def test_an_unknown_name_is_told_and_left_aside(tmp_path: Path) -> None:
    path = tmp_path / "clew.toml"
    path.write_text('[review]\nagnet = "claude"\nmodel = "m"\n')
    told = review_settings({}, {}, path)
    assert told.model == "m"
    assert "'agnet'" in told.warnings[0]
