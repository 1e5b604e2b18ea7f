"""How long the property tests run: short and the same every day, long and random when asked for.

`CLEW_LAW=1` selects the long form. A test that sets `max_examples` itself keeps its number in both.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("daily", max_examples=40, deadline=None, derandomize=True, suppress_health_check=_PATIENT)
settings.register_profile("law", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=_PATIENT)
settings.load_profile("law" if os.environ.get("CLEW_LAW") else "daily")
