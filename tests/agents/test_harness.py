"""Every fixture is a session that its own agent resumes, and of which it sends everything to its model."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.lab import kimi
from agents.lab.judge import as_groups, judge_sees
from agents.lab.needs import need_agent
from clew_corpus import Case, own_cases

pytestmark = pytest.mark.agent


@pytest.mark.parametrize("case", own_cases(), ids=str)
def test_the_agent_resumes_its_own_session(case: Case, tmp_path: Path) -> None:
    driver = need_agent(case.agent)
    home = case.copy_home(tmp_path / "home")
    cwd = tmp_path / "work"
    cwd.mkdir()
    if hasattr(driver, "rehome"):
        driver.rehome(home, case.session_id, cwd)
    seen = driver.resume(home, cwd, case.session_id)
    assert case.expected
    if case.agent == "kimi":
        seen = replace(seen, messages=tuple(kimi.apart(seen.messages, case.expected)))
    assert judge_sees(seen, as_groups(case.expected)) == []
    assert seen.session_id == case.session_id
