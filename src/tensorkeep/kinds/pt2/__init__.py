"""Programs of torch.export and packages of AOTInductor, whose weights are tensors by name.

- `_kind`: `ProgramFile` and the record of this kind.
"""

from tensorkeep.kinds.pt2._kind import PT2

__all__ = ["PT2"]
