"""The contract of `capture` and `restore`, for a library whose objects hold variables."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tensorkeep
from tensorkeep.arrays import convert_to, tensor_to_write
from tensorkeep.errors import StateDictMismatchError, StateError
from tensorkeep.state import NamedData


class RunStates:
    """What `capture` and `restore` of every library do; a subclass makes the runs."""

    api: Any
    """The module with both."""

    draws: ClassVar[bool] = True
    """Whether the library has a global random generator."""

    only_model: ClassVar[dict[str, Any]] = {}
    """What leaves everything but the model out of a capture or restore."""

    def run(self, width: int = 3) -> dict[str, Any]:
        """Return a new model and its optimizer, with weights that no other run has."""
        raise NotImplementedError

    def train(self, run: dict[str, Any], n_steps: int) -> None:
        """Train a run, with random numbers of the library."""
        raise NotImplementedError

    def draw(self) -> Any:
        """Return random numbers of the library's global generator."""
        raise NotImplementedError

    def captured(self, run: dict[str, Any], **extra: Any) -> dict[str, Any]:
        state: dict[str, Any] = self.api.capture(**run, **extra)
        return state

    def content(self, run: dict[str, Any]) -> dict[str, bytes]:
        """Return the bytes of everything that a run holds, without names that count objects of the process."""
        return flat(self.api.capture(**run, rng=False))

    def test_a_resumed_run_is_the_uninterrupted_one(self, tmp_path: Path) -> None:
        whole = self.run()
        self.train(whole, 3)
        tensorkeep.save(self.captured(whole, step=3), tmp_path / "x.safetensors")
        self.train(whole, 3)
        expected = random.random(), np.random.rand(), self.draw() if self.draws else None

        for source in ("x.safetensors", "sharded", "store"):
            resumed = self.run()
            if source == "sharded":
                tensorkeep.reshard(tmp_path / "x.safetensors", tmp_path / source, max_shard_size=400)
            if source == "store":
                store = tensorkeep.CheckpointStore(tmp_path / source)
                store.save(3, tensorkeep.load(tmp_path / "x.safetensors"))
                rest = self.api.restore(store.load(), **resumed)
            else:
                rest = self.api.restore(tmp_path / source, **resumed)

            assert rest == {"step": 3}
            self.train(resumed, 3)
            assert self.content(resumed) == self.content(whole), source
            found = random.random(), np.random.rand(), self.draw() if self.draws else None
            assert str(found) == str(expected)

    def test_a_run_goes_back_to_what_it_was(self, tmp_path: Path) -> None:
        run = self.run()
        self.train(run, 1)
        before = self.content(run)
        tensorkeep.save(self.captured(run), tmp_path / "x.safetensors")
        self.train(run, 2)
        assert self.content(run) != before

        self.api.restore(tmp_path / "x.safetensors", **run)

        assert self.content(run) == before

    def test_a_file_of_only_a_model_is_restored_as_the_error_says(self, tmp_path: Path) -> None:
        run, other = self.run(), self.run()
        tensorkeep.save(as_numpy(self.captured(run))["model"], tmp_path / "x.safetensors")

        with pytest.raises(StateDictMismatchError) as caught:
            self.api.restore(tmp_path / "x.safetensors", model=other["model"])
        assert 'restore({"model": tensorkeep.load(path)}, model=model, rng=False)' in str(caught.value)
        state = {"model": tensorkeep.load(tmp_path / "x.safetensors")}
        self.api.restore(state, model=other["model"], rng=False, **self.only_model)

        restored, saved = (
            flat(self.api.capture(model=each["model"], rng=False, **self.only_model)) for each in (other, run)
        )
        assert list(restored.values()) == list(saved.values())

    def test_what_does_not_fit_changes_nothing(self, tmp_path: Path) -> None:
        wider, run = self.run(width=5), self.run()
        self.train(wider, 1)
        self.train(run, 1)
        tensorkeep.save(self.captured(wider), tmp_path / "x.safetensors")
        before, rng = self.content(run), random.getstate()

        for objects in (run, {"model": run["model"], "optimizer": run["optimizer"]}):
            with pytest.raises(StateDictMismatchError, match=r"model does not fit .* of another shape: `") as caught:
                self.api.restore(tmp_path / "x.safetensors", **objects)
            assert caught.value.mismatched
        state = self.api.capture(**run)
        name = next(iter(state["model"]))
        broken: dict[str, Callable[[dict[str, Any]], Any]] = {
            "1 missing": lambda model: model.pop(name),
            "1 unexpected: `strange`": lambda model: model.update(strange=model[name]),
            " 1 of another dtype: .*float64 saved": lambda model: model.update({
                name: as_numpy(model[name]).astype(np.float64)
            }),
            "str saved": lambda model: model.update({name: "text"}),
        }
        for message, breaks in broken.items():
            other = as_numpy(state)
            breaks(other["model"])
            with pytest.raises(StateDictMismatchError, match=message):
                self.api.restore(other, **run)
        for part, value in (("model", []), ("optimizer", {}), ("rng", {"python": 3}), ("rng", {"strange": 3})):
            with pytest.raises(StateDictMismatchError, match=f"^{part}"):
                self.api.restore(as_numpy(state) | {part: value}, **run)
        with pytest.raises(StateDictMismatchError, match="has no optimizer"):
            self.api.restore({"model": state["model"], "rng": state["rng"]}, **run)
        with pytest.raises(tensorkeep.errors.UnsupportedError, match="saved as an object"):
            self.api.restore(as_numpy(state) | {"model": {name: NamedData("dataclass", "x:Y", {})}}, **run)
        assert self.content(run) == before
        assert random.getstate() == rng

    def test_less_is_loaded_only_if_asked_for(self) -> None:
        run = self.run()
        self.train(run, 1)
        state = as_numpy(self.api.capture(**run))
        name = next(iter(state["model"]))
        kept = as_numpy(self.api.capture(**run))["model"][name]
        del state["model"][name]
        self.train(run, 1)

        self.api.restore(state | {"model": state["model"] | {"strange": kept}}, **run, strict=False)

        found = as_numpy(self.api.capture(**run))["model"]
        assert not np.array_equal(found[name], kept)
        assert all(np.array_equal(found[other], saved) for other, saved in state["model"].items())

    def test_generators_and_several_objects(self, tmp_path: Path) -> None:
        runs = [self.run(), self.run()]
        for run in runs:
            self.train(run, 1)
        models = {"a": runs[0]["model"], "b": [runs[1]["model"]]}
        generator, python = np.random.default_rng(3), random.Random(4)
        state = self.api.capture(model=models, order=generator, python=python, rng=False, names=["x"], nothing=None)
        assert "rng" not in state
        tensorkeep.save(state, tmp_path / "x.safetensors")
        drawn = generator.random(), python.random()
        before = self.content({"model": models, "optimizer": None})
        for run in runs:
            self.train(run, 1)

        rest = self.api.restore(tmp_path / "x.safetensors", model=models, order=generator, python=python, rng=False)

        assert rest == {"names": ["x"], "nothing": None}
        assert (generator.random(), python.random()) == drawn
        assert self.content({"model": models, "optimizer": None}) == before
        with pytest.raises(StateDictMismatchError, match="model has other objects in the checkpoint"):
            self.api.restore(tmp_path / "x.safetensors", model={"a": runs[0]["model"]}, rng=False)

    def test_other_objects_are_refused(self) -> None:
        with pytest.raises(StateError, match="'model' has no state to capture"):
            self.api.capture(model=object())
        state = self.api.capture(model=np.random.default_rng(3), rng=False, step=3)
        with pytest.raises(StateError, match="cannot load a state into step"):
            self.api.restore(state, step=3, rng=False)


def flat(value: Any) -> dict[str, bytes]:
    """Return nested data as bytes by place; keys are numbered, since libraries number their objects."""
    if isinstance(value, dict):
        items = [flat(item) for key, item in value.items() if key != "parameters"]
    elif isinstance(value, list):
        items = [flat(item) for item in value]
    elif hasattr(value, "shape"):
        described = tensor_to_write(value, "x")
        return {"": f"{described.dtype.name}{described.shape}".encode() + b"".join(map(bytes, described.buffers()))}
    elif isinstance(value, np.random.RandomState):
        return flat(value.get_state(legacy=False))
    else:
        return {"": json.dumps(value).encode()}
    return {f"{place}.{name}": content for place, item in enumerate(items) for name, content in item.items()}


def as_numpy(value: Any) -> Any:
    """Return nested data with NumPy arrays for all tensors."""
    if isinstance(value, dict):
        return {key: as_numpy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_numpy(item) for item in value]
    return np.array(convert_to("numpy", value)) if hasattr(value, "shape") else value
