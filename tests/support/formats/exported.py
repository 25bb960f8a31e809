"""Programs of torch.export, as bytes, and the same with members replaced."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

TOP = "archive"


class Model(torch.nn.Module):
    """Holds tensors under dotted names, and adds up all of them."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            *parents, own = name.split(".")
            module: torch.nn.Module = self
            for parent in parents:
                if not hasattr(module, parent):
                    module.add_module(parent, torch.nn.Module())
                module = module.get_submodule(parent)
            if isinstance(tensor, torch.nn.Parameter):
                module.register_parameter(own, tensor)
            else:
                module.register_buffer(own, tensor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((each.float().sum() for each in self.state_dict().values()), x)


def exported(model: torch.nn.Module, *inputs: Any, **more: Any) -> bytes:
    """Return what `torch.export.save` writes for a model."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(model, inputs or (torch.ones(2),), **more), buffer)
    return buffer.getvalue()


@cache
def small() -> bytes:
    """Return a program with tied, transposed and sliced weights, a constant, and a size that is an expression."""

    class Small(Model):
        def __init__(self) -> None:
            weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
            base = torch.arange(100.0)
            super().__init__({
                "a.weight": weight,
                "b.weight": weight,
                "turned": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t(),
                "part": base[10:20],
                "empty": torch.zeros(0, 3),
                "scalar": torch.tensor(3),
            })
            self.constant = torch.tensor([1.0, 2.0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([super().forward(x), x * 2]) + self.constant.sum()

    return exported(Small(), torch.ones(5), dynamic_shapes=({0: torch.export.Dim("n")},))


def rewritten(data: bytes, changes: dict[str, bytes | Callable[[bytes], bytes] | None]) -> bytes:
    """Return an archive with members, named without their top folder, replaced, changed, added or (None) left out."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = {name.partition("/")[2]: old.read(name) for name in old.namelist()}
    for name, change in changes.items():
        members.pop(name, None) if change is None else members.update({
            name: change(members[name]) if callable(change) else change
        })
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for name, content in members.items():
            new.writestr(f"{TOP}/{name}", content)
    return buffer.getvalue()


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    """Return a change of every occurrence of a text, which must occur."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode())

    return change
