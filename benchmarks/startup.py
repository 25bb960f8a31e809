"""The cost of an import, in a fresh process each time."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

from benchmarks.case import AtMostOver, Case, Contender, Place

__all__ = ["CASES"]

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Lets Python keep compiled modules, as for whoever installs a package; the round that warms up makes them."""


class _Zygote:
    """A process that has imported torch, and nothing else, and forks for every request.

    Importing torch takes so long that the difference between two whole runs would say nothing.
    """

    _PROGRAM = """
import os, sys, torch
for line in sys.stdin:
    child = os.fork()
    if not child:
        exec(line)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""

    def __init__(self) -> None:
        command = [sys.executable, "-c", self._PROGRAM]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT
        )
        self.run("pass")

    def run(self, code: str) -> None:
        """Run a line of Python in a fork, to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(code, file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "0\n":
            raise RuntimeError(f"failed: {code}")


@cache
def _zygote(_: Place) -> _Zygote:
    return _Zygote()


def _ready(_: Place) -> None:
    """Prepare nothing."""


def _spawn(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, env=_ENVIRONMENT)


def _run(code: str, name: str | None = None) -> Contender:
    """Run a line of Python in a fresh process."""
    return Contender(name or f"`{code}`", lambda _: _spawn(code))


def _run_after_torch(code: str, name: str | None = None) -> Contender:
    """Run a line of Python in a fork of a process that has imported torch."""
    return Contender(name or f"`{code}`", lambda zygote: zygote.run(code))


CASES = (
    Case(
        name="startup/tensorkeep",
        title="`import tensorkeep`, over bare Python",
        prepare=_ready,
        ours=_run("import tensorkeep"),
        peers=(_run("pass", "bare Python"), _run("import safetensors"), _run("import msgspec"), _run("import numpy")),
        target=AtMostOver(0.030),
        rounds=31,
        has_memory=False,
    ),
    Case(
        name="startup/torch",
        title="`import tensorkeep.torch`, over `import torch`",
        prepare=_zygote,
        ours=_run_after_torch("import tensorkeep.torch"),
        peers=(_run_after_torch("pass", "a fork"), _run_after_torch("import safetensors.torch")),
        target=AtMostOver(0.030),
        rounds=31,
        has_memory=False,
        remark="All times are of a fork of a process that has imported torch.",
    ),
)
