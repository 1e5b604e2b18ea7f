from pathlib import Path

import pytest

from clew.cli.group import agent_environment
from clew.cli.settings import GLOBALS, Settings, load_settings
from clew.errors import UsageError


def write_config(around, text, root: Path | None = None):
    folder = root / ".config" / "clew" if root else around.config_folder()
    folder.mkdir(parents=True)
    (folder / "clew.toml").write_text(text)


def test_what_holds_when_nothing_is_said(around):
    assert load_settings({}, around) == Settings(data=around.data_folder())


def test_option_before_environment_before_file(around):
    write_config(around, 'data = "/file"\nstore = "postgresql://file"\ncolor = "never"\nquiet = true\n')
    around = around._replace(env={"CLEW_DATA": "/env", "CLEW_STORE": "postgresql://env", "CLEW_COLOR": ""})
    settings = load_settings({"data": "/option"}, around)
    assert settings.data == Path("/option")
    assert settings.store == "postgresql://env"
    assert settings.color == "never"
    assert settings.quiet


def test_with_a_root_everything_of_clew_lies_below_it(around, tmp_path):
    root = tmp_path / "root"
    write_config(around, 'store = "postgresql://home"\n')
    write_config(around, 'blobs = "s3://root"\n', root)
    settings = load_settings({"root": str(root)}, around)
    assert settings.root == root
    assert settings.data == root / ".local" / "share" / "clew"
    assert (settings.store, settings.blobs) == (None, "s3://root")


def test_a_root_can_come_from_the_environment(around):
    around = around._replace(env={"CLEW_ROOT": "elsewhere"})
    assert load_settings({}, around).root == around.cwd / "elsewhere"


def test_relative_folders_are_those_of_the_caller_and_a_tilde_is_the_home(around):
    assert load_settings({"data": "x/y"}, around).data == around.cwd / "x/y"
    around = around._replace(env={"CLEW_DATA": "~/d"})
    assert load_settings({}, around).data == around.home / "d"


def test_flags_in_the_environment(around):
    assert load_settings({}, around._replace(env={"CLEW_JSON": "1"})).json
    assert not load_settings({}, around._replace(env={"CLEW_JSON": "0"})).json


@pytest.mark.parametrize(
    ("text", "word"),
    [("color = 3\n", "color"), ('color = "pink"\n', "pink"), ("data = true\n", "data"), ("= =\n", "TOML")],
)
def test_a_wrong_file_is_told_with_its_name(around, text, word):
    write_config(around, text)
    with pytest.raises(UsageError, match=r"clew\.toml") as failure:
        load_settings({}, around)
    assert word in failure.value.message


def test_a_wrong_variable_is_told_with_its_name(around):
    with pytest.raises(UsageError, match="CLEW_COLOR"):
        load_settings({}, around._replace(env={"CLEW_COLOR": "pink"}))


def test_an_unknown_name_in_the_file_is_told_and_left_aside(around):
    write_config(around, 'colour = "never"\n')
    settings = load_settings({}, around)
    assert settings.color == "auto"
    assert "colour" in settings.warnings[0]


def test_every_setting_is_an_option_and_the_other_way_round():
    assert {option.name for option in GLOBALS} == set(Settings._fields) - {"warnings", "state"}


def test_an_agent_started_with_a_root_has_it_as_its_home(around):
    around = around._replace(env={"HOME": "/home/dev", "CODEX_HOME": "/x", "PATH": "/bin"})
    assert agent_environment(Settings(Path("/d")), around) == around.env
    with_root = agent_environment(Settings(Path("/d"), root=Path("/r")), around)
    assert with_root == {"HOME": "/r", "PATH": "/bin"}


@pytest.mark.parametrize("option", ["--root", "--data"])
def test_an_empty_name_is_no_folder(around, option):
    with pytest.raises(UsageError, match=f"{option} names no folder"):
        load_settings({option[2:]: ""}, around)
