"""Every fixture is a session that its own agent resumes, and of which it sends everything to its model."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.lab import kimi, scrub
from agents.lab.judge import as_groups, judge_sees
from agents.lab.needs import need_agent
from clew_corpus import Case, own_cases

pytestmark = pytest.mark.agent


# Of Vibe's own store the fixtures hold what a reader needs; the rest is the agent's prompts, under digests of bytes.
WHOLE = [case for case in own_cases() if case.agent != "vibe"]


@pytest.mark.parametrize("case", WHOLE, ids=str)
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
    if case.agent == "pi":  # what the agent writes around a summary is not in the fixtures
        seen = replace(seen, messages=tuple(scrub.clean(list(seen.messages))))
    assert judge_sees(seen, as_groups(case.expected)) == []
    assert seen.session_id == case.session_id
