"""Files of Flax, alone or in shards with an index, keep the contract of kinds."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contracts.kind import Arrays, KindContract


class TestFlaxFiles(KindContract):
    has_checksums = False
    is_pickled = True

    def save(self, arrays: Arrays, directory: Path) -> Path:
        from flax import serialization

        path = directory / "flax_model.msgpack"
        path.write_bytes(serialization.msgpack_serialize(dict(arrays)))
        return path


class TestSetsOfFlaxFiles(KindContract):
    has_checksums = False
    is_pickled = True

    def save(self, arrays: Arrays, directory: Path) -> Path:
        from flax import serialization

        files = {name: f"flax_model-0000{1 + (name == 'bias')}-of-00002.msgpack" for name in arrays}
        for file in set(files.values()):
            shard = {name: array for name, array in arrays.items() if files[name] == file}
            (directory / file).write_bytes(serialization.msgpack_serialize(shard))
        index = directory / "flax_model.msgpack.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
        return index
