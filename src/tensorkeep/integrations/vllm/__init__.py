"""vLLM: `--load-format tensorkeep`.

vLLM finds `register` by the entry point `vllm.general_plugins`; nothing needs to be imported. Written after the
source of vLLM 0.11 and 0.33.

- `_register`: `register`.
- `_loader`: the loader, which is registered when it is imported (imports vLLM).
"""

from tensorkeep.integrations.vllm._register import register

__all__ = ["register"]
