"""What vLLM calls to learn about a load format."""

from __future__ import annotations

from tensorkeep.on_demand import imported


def register() -> None:
    """Register the load format `tensorkeep` with vLLM, which calls this in each of its processes."""
    imported("tensorkeep.integrations.vllm._loader")
