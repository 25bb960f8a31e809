"""What all tests share: where things are, and how the property tests run."""

from __future__ import annotations

import os

import hypothesis

from tests.support import ROOT

# Programs that tests start import tests.support too, from whatever directory they run in.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

hypothesis.settings.register_profile(
    "tensorkeep",
    deadline=None,  # the machine may be busy
    derandomize=True,  # equal code gives equal results; fuzz/ is for new inputs
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("tensorkeep")
