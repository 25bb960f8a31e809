"""SGLang: `sglang.Engine(load_format=TensorkeepModelLoader)`.

Written after the source of SGLang 0.5.23, which takes a class as `load_format`.

- `_loader`: the loader (imports SGLang).
"""

import tensorkeep.errors

with tensorkeep.errors.importing(sglang="sglang", torch='"tensorkeep[torch]"'):
    import sglang  # noqa: F401
    import torch  # noqa: F401

from tensorkeep.integrations.sglang._loader import TensorkeepModelLoader

__all__ = ["TensorkeepModelLoader"]
