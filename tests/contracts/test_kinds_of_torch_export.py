"""Programs of torch.export, and packages of compiled code with weights, keep the contract of kinds."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.export.pt2_archive import _package, _package_weights

from tests.contracts.kind import Arrays, KindContract
from tests.support.formats.exported import Model, exported


class TestProgramsOfTorchExport(KindContract):
    holds_programs = True

    def save(self, arrays: Arrays, directory: Path) -> Path:
        path = directory / "model.pt2"
        path.write_bytes(exported(Model({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})))
        return path


class TestWeightsOfCompiledPackages(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        weights = _package_weights.Weights({
            name: (tensor, _package_weights.TensorProperties(tensor)) for name, tensor in tensors.items()
        })
        path = directory / "model.pt2"
        _package.package_pt2(os.fspath(path), aoti_files={"model": [weights]})
        return path
