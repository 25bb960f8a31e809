"""`pytest -p tests.support.core`: tests that need a package that is not installed are skipped, and counted.

A module or a test that fails to import such a package is left out; the summary says how many, and for want of what.
Any other failure counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_left_out: Counter[str] = Counter()


def _missing(error: BaseException | None) -> str | None:
    """Return the name of the package whose absence is behind an error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            name = (error.name or str(error)).partition(".")[0]
            return None if name in {"tensorkeep", "tests"} else name
        error = error.__cause__ or error.__context__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule(module_path: Any, parent: Any) -> Iterator[Any]:
    module = yield
    imported = module._getobj

    def get_or_skip() -> Any:
        try:
            return imported()
        except Exception as error:
            if name := _missing(error):
                _left_out[name] += 1
                pytest.skip(f"no {name} here", allow_module_level=True)
            raise

    module._getobj = get_or_skip
    return module


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    report = yield
    if report.outcome == "failed" and call.excinfo and (name := _missing(call.excinfo.value)):
        _left_out[name] += 1
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: no {name} here")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, number in _left_out.most_common():
        terminalreporter.write_line(f"left out without {name}: {number} modules and tests")
