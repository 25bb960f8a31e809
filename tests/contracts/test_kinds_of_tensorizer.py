"""Files of CoreWeave's tensorizer keep the contract of kinds."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from tensorizer import TensorSerializer

from tests.contracts.kind import Arrays, KindContract


class TestTensorizerFiles(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        path = directory / "model.tensors"
        serializer = TensorSerializer(os.fspath(path))
        serializer.write_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        serializer.close()
        return path
