"""Array libraries and their tensors in annotations. Pure.

A class such as `LazyTensor` is generic in the tensors that it gives: `LazyTensor[torch.Tensor]`. Without a parameter,
they are `Any`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ArrayT = TypeVar("ArrayT", default=Any)
    """The tensors of some array library."""
else:
    from typing import TypeVar

    ArrayT = TypeVar("ArrayT")

NumpyName: TypeAlias = Literal["numpy", "np"]
TorchName: TypeAlias = Literal["torch", "pt", "pytorch"]
JaxName: TypeAlias = Literal["jax", "flax"]
TensorflowName: TypeAlias = Literal["tensorflow", "tf"]
MlxName: TypeAlias = Literal["mlx"]
PaddleName: TypeAlias = Literal["paddle"]
CupyName: TypeAlias = Literal["cupy"]

Framework: TypeAlias = NumpyName | TorchName | JaxName | TensorflowName | MlxName | PaddleName | CupyName
"""Every name of an array library."""
