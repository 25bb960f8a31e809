"""vLLM: `--load-format tensorkeep`.

vLLM finds `register` by the entry point `vllm.general_plugins`; nothing needs to be imported. Written after the
source of vLLM 0.11 and 0.33.

- `_loader`: the loader, which is registered when it is imported (imports vLLM).
"""

from tensorkeep.on_demand import imported

__all__ = ["register"]


def register() -> None:
    """Register the load format `tensorkeep` with vLLM, which calls this in each of its processes."""
    imported("tensorkeep.integrations.vllm._loader")
