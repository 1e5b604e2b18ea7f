"""Fault points: silent unless armed, counted, and with every action."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from clew.errors import UsageError
from clew.platform import faults

POINT = faults.declare("tests.some-point")


def test_a_pass_does_nothing_when_nothing_is_armed():
    faults.fault(POINT)


def test_an_armed_point_acts_at_the_wanted_pass_and_only_there():
    with faults.installed(f"{POINT}@2=raise"):
        faults.fault(POINT)
        with pytest.raises(faults.InjectedFault):
            faults.fault(POINT)
        faults.fault(POINT)
    faults.fault(POINT)


def test_an_error_of_the_system_can_be_injected():
    with faults.installed(f"{POINT}=raise:ENOSPC"), pytest.raises(OSError, match="injected") as caught:
        faults.fault(POINT)
    assert caught.value.errno == errno.ENOSPC


def test_a_hook_is_called_at_every_pass():
    seen: list[int] = []
    with faults.installed(tests__some_point=lambda: seen.append(1)):
        faults.fault(POINT)
        faults.fault(POINT)
    assert seen == [1, 1]


def test_points_are_listed_and_unique():
    assert POINT in faults.points()
    with pytest.raises(AssertionError):
        faults.declare(POINT)


def test_an_unknown_point_is_a_defect_when_anything_is_armed():
    with faults.installed(f"{POINT}=raise"), pytest.raises(AssertionError):
        faults.fault("tests.never-declared")


@pytest.mark.parametrize("spec", ["x", "=raise", "x@y=raise", "x=explode", "x=raise:ENOTHING", "x=kill:9"])
def test_a_malformed_spec_is_refused(spec: str):
    with pytest.raises(UsageError):
        faults.install(spec)
    faults.clear()


@pytest.mark.parametrize(("action", "status"), [("kill", -9), ("exit", faults.EXIT_STATUS)])
def test_kill_and_exit_end_the_process_without_clean_up(action: str, status: int):
    code = (
        "from clew.platform import faults\n"
        "p = faults.declare('tests.deadly')\n"
        f"faults.install('tests.deadly={action}')\n"
        "try:\n    faults.fault(p)\nfinally:\n    print('cleaned up')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == status
    assert done.stdout == b""
