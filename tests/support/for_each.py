"""Many cases in one test, where a test for each would cost more to collect than to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test for each case, as `pytest.mark.parametrize` would, and note the case on what fails.

    Fixtures are made once for all cases.
    """
    cases = list(cases)

    def decorate(test: Test) -> Test:
        own = names if isinstance(names, tuple) else (names,)

        @functools.wraps(test)
        def test_all(*fixtures: Any, **others: Any) -> None:
            for case in cases:
                values = case if isinstance(names, tuple) else (case,)
                try:
                    test(*fixtures, **others, **dict(zip(own, values, strict=True)))
                except BaseException as error:
                    error.add_note(f"with {', '.join(own)} = {', '.join(map(_shown, values))}")
                    raise

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in own]
        test_all.__signature__ = signature.replace(parameters=fixtures)  # pytest passes only fixtures
        return test_all

    return decorate


def _shown(value: Any) -> str:
    return str(getattr(value, "name", None) or f"{value!r:.200}")
