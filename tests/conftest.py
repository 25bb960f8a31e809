"""What holds for all tests: what their programs inherit, a limit of time for each, and how property tests run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import hypothesis
import psutil
import pytest

from tests.support import ROOT
from tests.support.soak import SOAK, rounds
from tests.support.written_once import shared_folder

collect_ignore = ["gpu"]  # `make gpu` runs these

# Programs that tests start import tests.support too, from whatever directory they run in.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# Under nohup or in a shell's background job SIGINT is ignored, also by all programs started from here: those that
# tests interrupt would go on for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "tensorkeep",
    max_examples=rounds(60, 5000),
    deadline=None,  # the machine may be busy
    derandomize=not SOAK,  # equal code gives equal results; new inputs are for `make soak`
    database=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.large_base_example,
    ],
)
hypothesis.settings.load_profile("tensorkeep")


def pytest_configure() -> None:
    shared_folder()  # before other processes start


def pytest_collection_finish() -> None:
    gc.freeze()  # by now there are millions of objects of the libraries, which every collection would look at


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.soak)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Iterator[Any]:
    """Let a test that takes too long kill the programs it started, or its own clean-up would wait for them."""
    result = yield
    if not hasattr(signal, "SIGALRM"):  # Windows
        return result
    fail: Any = signal.getsignal(signal.SIGALRM)

    def kill_and_fail(number: int, frame: FrameType | None) -> None:
        for child in psutil.Process().children(recursive=True):
            child.kill()
        fail(number, frame)

    signal.signal(signal.SIGALRM, kill_and_fail)
    return result
