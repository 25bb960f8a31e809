"""What all tests share: where things are, and how the property tests run."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / "fuzz"))  # the fuzzer's headers and verdicts serve the property tests too

hypothesis.settings.register_profile(
    "tensorkeep",
    deadline=None,  # the machine may be busy
    derandomize=True,  # equal code gives equal results; fuzz/ is for new inputs
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("tensorkeep")
