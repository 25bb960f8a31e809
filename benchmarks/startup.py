"""What an import costs, in a fresh process each time."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.case import AtMostOver, Case, Contender, Place

__all__ = ["CASES"]


def _ready(_: Place) -> None:
    """Make nothing."""


def _run(code: str, name: str | None = None) -> Contender:
    return Contender(name or f"`{code}`", lambda _: subprocess.run([sys.executable, "-c", code], check=True))


CASES = (
    Case(
        name="startup/tensorkeep",
        title="`import tensorkeep`, over bare Python",
        prepare=_ready,
        ours=_run("import tensorkeep"),
        peers=(_run("pass", "bare Python"), _run("import safetensors")),
        limits=(_run("import msgspec"),),
        target=AtMostOver(0.030),
        rounds=31,
        has_memory=False,
    ),
    Case(
        name="startup/torch",
        title="`import tensorkeep.torch`, over `import torch`",
        prepare=_ready,
        ours=_run("import torch, tensorkeep.torch"),
        peers=(_run("import torch"), _run("import torch, safetensors.torch")),
        target=AtMostOver(0.030),
        has_memory=False,
    ),
)
