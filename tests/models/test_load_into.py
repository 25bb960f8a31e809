"""Checkpoints into models: the same numbers as `load_state_dict` gives, in the memory that the model has."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import (
    DtypeError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    StateDictMismatchError,
    TensorNotFoundError,
    UnsupportedError,
)
from tensorkeep.torch import capture, load_into, load_sharded, save_model


class Net(nn.Module):
    """Parameters, tied ones, buffers saved and unsaved, integers, a scalar, and one without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("ids", torch.arange(7))
        self.register_buffer("mask", torch.ones(3), persistent=False)


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            values = torch.randint(-1000, 1000, tensor.shape, generator=generator)
            tensor.copy_(values / 8 if tensor.is_floating_point() else values)
    return model


def saved(tensors: dict[str, torch.Tensor], path: Path) -> Path:
    tensorkeep.save({name: tensor.detach().clone() for name, tensor in tensors.items()}, path)
    return path


def untied(model: nn.Module) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    state.pop("head.weight", None)
    return state


def bits(model: nn.Module) -> dict[str, bytes]:
    """Everything that the model holds, unsaved buffers too, byte for byte."""
    held = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return {
        f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}": tensor
        .detach()
        .contiguous()
        .reshape(-1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
        for name, tensor in held.items()
    }


@pytest.fixture
def original() -> nn.Module:
    return randomised(Net())


@pytest.fixture
def path(original, tmp_path) -> Path:
    return saved(untied(original), tmp_path / "model.safetensors")


def test_the_numbers_are_there_and_the_tensors_are_the_same(original, path):
    model = Net()
    before = {name: (id(tensor), tensor.data_ptr(), tensor._version) for name, tensor in model.named_parameters()}

    report = load_into(model, path)

    assert bits(model) == {**bits(original), **{k: v for k, v in bits(Net()).items() if k.startswith("mask")}}
    for name, tensor in model.named_parameters():
        assert (id(tensor), tensor.data_ptr()) == before[name][:2]
        assert tensor._version > before[name][2] or not tensor.numel()
    assert model.head.weight is model.embed.weight
    assert (report.missing, report.unexpected, report.mismatched, report.left_on_meta) == ((), (), (), ())
    assert report.n_tensors == len(untied(original))
    assert report.nbytes == sum(tensor.nbytes for tensor in untied(original).values())


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(
    "options", [{}, {"assign": True}, {"dtype": "bf16"}, {"dtype": torch.float64, "assign": True}]
)
def test_open_files_views_and_bytes_are_taken_too(original, path, backend, framework, options):
    with tensorkeep.open(path, backend=backend, framework=framework) as file:
        targets = [file, file.select("*"), dict(file), path.read_bytes(), io.BytesIO(path.read_bytes()), str(path)]
        for target in targets:
            model = Net()
            load_into(model, target, **options)
            wanted = copy.deepcopy(original).to(model.scale.dtype)
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), wanted.parameters(), strict=True))


def test_shards_are_loaded(original, tmp_path):
    tensorkeep.save_checkpoint(untied(original), tmp_path / "ckpt", max_shard_size="100B")
    assert len(list((tmp_path / "ckpt").glob("*.safetensors"))) > 2

    for target in (tmp_path / "ckpt", tmp_path / "ckpt" / "model.safetensors.index.json"):
        model = Net()
        report = load_into(model, target)
        assert torch.equal(model.embed.weight, original.embed.weight)
        assert report.n_tensors == len(untied(original))


def test_a_missing_file_and_a_damaged_checkpoint_leave_the_model_alone(original, tmp_path):
    tensorkeep.save_checkpoint(untied(original), tmp_path / "ckpt", max_shard_size="100B")
    next((tmp_path / "ckpt").glob("*-00002-*")).write_bytes(b"0" * 64)
    model = Net()
    before = bits(model)

    with pytest.raises(IntegrityError):
        load_into(model, tmp_path / "ckpt")
    with pytest.raises(SourceMissingError):
        load_into(model, tmp_path / "nothing.safetensors")
    assert bits(model) == before


def fail(model, target, error, match, **options):
    before = bits(model)
    with pytest.raises(error, match=match) as caught:
        load_into(model, target, **options)
    assert bits(model) == before, "an error wrote to the model"
    return caught.value


def test_missing_and_unexpected_names_are_an_error_before_anything_is_written(original, tmp_path):
    state = untied(original)
    state["norm.wieght"] = state.pop("norm.weight")
    path = saved(state, tmp_path / "x.safetensors")

    error = fail(Net(), path, StateDictMismatchError, r"`norm.weight` \(did you mean `norm.wieght`\?\)")

    assert (error.missing, error.unexpected) == (("norm.weight",), ("norm.wieght",))
    model = Net()
    report = load_into(model, path, strict=False)
    assert (report.missing, report.unexpected) == (("norm.weight",), ("norm.wieght",))
    assert torch.equal(model.embed.weight, original.embed.weight)
    assert torch.equal(model.norm.weight, torch.ones(6))
    assert "1 missing: norm.weight" in repr(report)


def test_other_shapes_are_an_error_or_left_alone(original, tmp_path):
    path = saved(
        untied(original) | {"scale": torch.ones(1), "norm.bias": torch.ones(2, 3)}, tmp_path / "x.safetensors"
    )

    error = fail(Net(), path, StateDictMismatchError, r"`norm.bias` \[6\] in the model, \[2, 3\]", strict=False)

    assert set(error.mismatched) == {("norm.bias", (6,), (2, 3)), ("scale", (), (1,))}
    assert error.missing == ()
    model = Net()
    report = load_into(model, path, ignore_mismatched=True)
    assert set(report.mismatched) == set(error.mismatched)
    assert model.scale == 2
    assert not model.norm.bias.any()
    assert torch.equal(model.embed.weight, original.embed.weight)


@pytest.mark.parametrize("dtype", [torch.complex64])
def test_numbers_that_would_lose_what_they_are_are_refused(dtype, original, tmp_path):
    path = saved(untied(original) | {"norm.bias": torch.ones(6, dtype=dtype)}, tmp_path / "x.safetensors")
    fail(Net(), path, DtypeError, "`norm.bias`")
    path = saved(untied(original) | {"ids": torch.ones(7)}, tmp_path / "x.safetensors")
    fail(Net(), path, DtypeError, "`ids`")
    fail(Net(), path, DtypeError, "`ids`", assign=True)


def test_a_dtype_or_device_that_no_parameter_can_have_is_refused(path):
    fail(Net(), path, UnsupportedError, "meta", device="meta")
    for dtype in ("int8", "F6_E2M3", "F4", "C64", "nonsense"):
        fail(Net(), path, DtypeError, ".", dtype=dtype)


@pytest.mark.parametrize("stored", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.int32])
def test_other_dtypes_are_converted_as_load_state_dict_does(stored, tmp_path):
    model = nn.Linear(300, 200).to(torch.float32)
    state = {name: (torch.randn(tensor.shape) * 9).to(stored) for name, tensor in model.state_dict().items()}
    path = saved(state, tmp_path / "x.safetensors")
    wanted = copy.deepcopy(model)
    wanted.load_state_dict(state)

    load_into(model, path)

    assert bits(model) == bits(wanted)


@pytest.mark.parametrize(("name", "bits_each"), [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)])
def test_packed_numbers_become_floats(name, bits_each, tmp_path):
    import ml_dtypes
    import numpy as np

    from tensorkeep.dtypes import BY_NAME

    codes = np.random.default_rng(0).integers(0, 2**bits_each, (1001, 1208), np.uint8)
    values = codes.view(getattr(ml_dtypes, BY_NAME[name].numpy))
    tensorkeep.save({"weight": values}, tmp_path / "x.safetensors")
    expected = torch.from_numpy(values.astype(np.float32))
    plain, transposed = nn.Linear(1208, 1001, bias=False), nn.Linear(1208, 1001, bias=False)
    transposed.weight.data = torch.zeros(1208, 1001).T

    for model in (plain, transposed):
        load_into(model, tmp_path / "x.safetensors")
        assert torch.equal(model.weight, expected)


def test_pairs_of_fp4_are_copied_as_they_are(tmp_path):
    class Packed(nn.Module):
        def __init__(self, data: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("blocks", data.view(torch.float4_e2m1fn_x2))

    data = torch.randint(0, 256, (6, 16), dtype=torch.uint8)
    tensorkeep.save({"blocks": data.view(torch.float4_e2m1fn_x2)}, tmp_path / "x.safetensors")
    apart = torch.zeros(16, 6, dtype=torch.uint8).T

    for start, options in ((torch.zeros_like(data), {}), (apart, {}), (torch.zeros_like(data), {"assign": True})):
        model = Packed(torch.zeros_like(data))
        model.blocks = start.view(torch.float4_e2m1fn_x2) if start.is_contiguous() else model.blocks
        load_into(model, tmp_path / "x.safetensors", **options)
        assert torch.equal(model.blocks.view(torch.uint8), data)


def test_any_memory_layout_is_filled_in_place(tmp_path):
    class Layouts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transposed = nn.Parameter(torch.zeros(700, 500).T)
            self.strided = nn.Parameter(torch.zeros(40, 60)[::2, ::3])
            self.channels_last = nn.Parameter(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
            self.register_buffer("conjugate", torch.zeros(5, dtype=torch.complex64).conj())
            self.register_buffer("expanded", torch.zeros(3, 1).expand(3, 4))

    state = {name: torch.randn(tensor.shape, dtype=tensor.dtype) for name, tensor in Layouts().state_dict().items()}
    path = saved(state, tmp_path / "x.safetensors")
    model = Layouts()
    before = {name: (tensor.stride(), tensor.data_ptr()) for name, tensor in model.named_parameters()}

    load_into(model, path)

    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert {name: (tensor.stride(), tensor.data_ptr()) for name, tensor in model.named_parameters()} == before


def test_frozen_and_inference_parameters_are_filled(original, path):
    frozen = Net().requires_grad_(False)
    with torch.inference_mode():
        inference = Net()

    for model in (frozen, inference):
        load_into(model, path)
        assert torch.equal(model.embed.weight, original.embed.weight)
    assert not frozen.embed.weight.requires_grad
    converted = load_into(inference, path, dtype="f16")
    assert inference.embed.weight.dtype == torch.float16
    assert converted.n_tensors == len(untied(original))


def test_backward_notices_that_a_parameter_was_overwritten(path):
    model = Net()
    loss = (model.embed.weight * model.embed.weight).sum()

    load_into(model, path)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_optimizer_goes_on_after_another_dtype(original, path):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.embed.weight.grad = torch.ones_like(model.embed.weight)

    load_into(model, path, dtype=torch.bfloat16)
    assert model.embed.weight.grad.dtype == torch.bfloat16
    optimizer.step()

    assert torch.equal(model.embed.weight, original.embed.weight.bfloat16() - 1)
    assert model.head.weight is model.embed.weight
    assert model.mask.dtype == torch.bfloat16, "unsaved buffers too, as .to(dtype) does it"
    assert model.ids.dtype == torch.int64


def test_what_is_not_loaded_gets_the_dtype_too(path, tmp_path):
    model = Net()
    weight = model.embed.weight.detach().clone()
    tensorkeep.save({"scale": torch.tensor(5.0)}, tmp_path / "x.safetensors")

    load_into(model, tmp_path / "x.safetensors", strict=False, dtype="float64")

    assert torch.equal(model.embed.weight, weight.double())
    assert model.scale == 5


def test_assigned_tensors_are_those_of_the_file(original, path):
    model = Net()
    parameters = dict(model.named_parameters())
    model.embed.weight.requires_grad_(False)

    load_into(model, path, assign=True)

    assert bits(model).items() >= {k: v for k, v in bits(original).items() if not k.startswith("mask")}.items()
    assert dict(model.named_parameters()).items() == parameters.items(), "the same parameter objects"
    assert model.head.weight is model.embed.weight
    assert not model.embed.weight.requires_grad
    with torch.no_grad():
        model.embed.weight.add_(1)
    assert torch.equal(tensorkeep.load(path, framework="torch")["embed.weight"], original.embed.weight)


def test_assigned_tensors_bring_their_dtype(tmp_path):
    path = saved({"weight": torch.ones(2, 3).half(), "bias": torch.ones(2).double()}, tmp_path / "x.safetensors")
    model = nn.Linear(3, 2)
    load_into(model, path, assign=True)
    assert (model.weight.dtype, model.bias.dtype) == (torch.float16, torch.float64)
    load_into(model, path, assign=True, dtype="f16")
    assert (model.weight.dtype, model.bias.dtype) == (torch.float16, torch.float16)


def test_a_model_on_meta_needs_assign(original, path):
    with torch.device("meta"):
        model = Net()
    model.embed.weight.note = "kept"

    with pytest.raises(UnsupportedError, match="assign=True"):
        load_into(model, path)
    report = load_into(model, path, assign=True)

    assert torch.equal(model.embed.weight, original.embed.weight)
    assert model.head.weight is model.embed.weight
    assert isinstance(model.embed.weight, nn.Parameter)
    assert model.embed.weight.requires_grad
    assert model.embed.weight.note == "kept"
    assert report.left_on_meta == ("mask",)


def test_names_are_changed_on_the_way(original, path, tmp_path):
    parallel = {f"module.{name}": tensor for name, tensor in untied(original).items()}
    for options, tensors in (
        ({"strip_prefix": "module."}, parallel),
        ({"key_map": lambda name: name.removeprefix("module.")}, parallel),
        (
            {"key_map": {"w": "embed.weight"}},
            {("w" if k == "embed.weight" else k): v for k, v in untied(original).items()},
        ),
        (
            {"strip_prefix": "module.", "key_map": {"w": "scale"}},
            {("module.w" if k == "module.scale" else k): v for k, v in parallel.items()},
        ),
    ):
        model = Net()
        load_into(model, saved(tensors, tmp_path / "x.safetensors"), **options)
        assert torch.equal(model.embed.weight, original.embed.weight)
        assert torch.equal(model.scale, original.scale)
    fail(Net(), path, TensorNotFoundError, "no name begins with 'module.'", strip_prefix="module.")
    fail(Net(), path, RefusedError, "two tensors would be called `x`", key_map=lambda name: "x")


def test_compiled_and_wrapped_models_take_a_prefix(original, path):
    compiled = torch.compile(Net())
    fail(compiled, path, StateDictMismatchError, "add_prefix='_orig_mod.'")

    load_into(compiled, path, add_prefix="_orig_mod.")

    assert torch.equal(compiled._orig_mod.embed.weight, original.embed.weight)


def test_ties_of_save_model_are_found(original, tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_model(original, path)
    for options in ({}, {"assign": True}, {"dtype": "f64"}):
        model = Net()
        report = load_into(model, path, **options)
        assert torch.equal(model.head.weight, original.embed.weight.to(model.head.weight.dtype))
        assert model.head.weight is model.embed.weight
        assert report.missing == ()

    apart = Net()
    apart.head.weight = nn.Parameter(torch.zeros(11, 6))
    load_into(apart, path)
    assert torch.equal(apart.head.weight, original.embed.weight), "not tied here, so it gets numbers of its own"
    assert torch.equal(apart.embed.weight, original.embed.weight)
    assert apart.head.weight.data_ptr() != apart.embed.weight.data_ptr()


@pytest.mark.parametrize("digests", [True, False])
def test_tied_weights_that_were_saved_apart_are_refused_where_they_differ(digests, original, tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {**untied(original), "head.weight": torch.ones(11, 6)}
    tensorkeep.save(tensors, path, digests=digests)
    model = randomised(Net(), seed=1)
    before = bits(model)

    with pytest.raises(StateDictMismatchError, match=r"ties `embed\.weight` to `head\.weight`") as caught:
        load_into(model, path)
    assert caught.value.unexpected == ("embed.weight",)
    assert bits(model) == before

    report = load_into(model, path, strict=False)
    assert report.unexpected == ("embed.weight",)
    assert model.embed.weight.sum() == 66

    tensors["head.weight"] = original.embed.weight.detach().clone()
    tensorkeep.save(tensors, path, digests=digests)
    assert load_into(model, path).unexpected == ()
    assert torch.equal(model.head.weight, original.embed.weight)


@pytest.mark.parametrize("options", [{}, {"assign": True}, {"dtype": "f64"}, {"dtype": "bf16", "assign": True}])
def test_views_of_a_parameter_stay_views(options, tmp_path):
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = nn.Parameter(torch.arange(12.0).reshape(3, 4))
            self.register_buffer("rows", self.whole.data[1:])
            self.register_buffer("flipped", self.whole.data.T)

    original = Views()
    with torch.no_grad():
        original.whole.mul_(10)
    tensorkeep.torch.save_model(original, tmp_path / "x.safetensors")
    model = Views()
    load_into(model, tmp_path / "x.safetensors", **options)

    assert torch.equal(model.whole, original.whole.to(model.whole.dtype))
    assert torch.equal(model.rows, model.whole[1:])
    assert torch.equal(model.flipped, model.whole.T)
    with torch.no_grad():
        model.whole.zero_()
    assert not model.rows.any()


def test_two_parameters_over_one_memory_are_one(tmp_path):
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.zeros(4))
            self.b = nn.Parameter(self.a.data)

    for options in ({}, {"dtype": "f64"}, {"assign": True}):
        model = Twins()
        load_into(model, saved({"b": torch.ones(4)}, tmp_path / "x.safetensors"), **options)
        assert model.a.sum() == 4
        with torch.no_grad():
            model.a.zero_()
        assert not model.b.any()


def test_old_normalizations_lack_a_counter(original, tmp_path):
    state = untied(original)
    del state["norm.num_batches_tracked"]

    report = load_into(Net(), saved(state, tmp_path / "x.safetensors"))

    assert report.missing == ()


class Extra(nn.Module):
    def __init__(self, state: object) -> None:
        super().__init__()
        self.state = state
        self.weight = nn.Parameter(torch.zeros(2))

    def get_extra_state(self) -> object:
        return self.state

    def set_extra_state(self, state: object) -> None:
        self.state = state


def test_extra_state_is_taken_where_it_is_a_tensor_and_missing_elsewhere(tmp_path):
    path = saved({"weight": torch.ones(2)}, tmp_path / "x.safetensors")
    for state in ({"step": 7}, torch.ones(5)):
        error = fail(Extra(state), path, StateDictMismatchError, "1 missing: `_extra_state`")
        assert error.missing == ("_extra_state",)
    path = saved({"weight": torch.ones(2), "_extra_state": torch.arange(9)}, tmp_path / "x.safetensors")
    model = Extra({"step": 7})

    report = load_into(model, path)

    assert torch.equal(model.state, torch.arange(9))
    assert (report.missing, report.n_tensors) == ((), 2)


def test_hooks_that_rename_take_part(tmp_path):
    old = nn.utils.weight_norm(nn.Linear(4, 3))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    nested = nn.Sequential(nn.ReLU(), new)
    path = saved({f"1.{name}": tensor for name, tensor in randomised(old).state_dict().items()}, tmp_path / "x.st")

    load_into(nested, path)

    assert torch.equal(new.parametrizations.weight.original0, old.weight_g)
    assert torch.equal(new.parametrizations.weight.original1, old.weight_v)


def test_hooks_that_need_the_data_are_refused(path):
    def doubled(module, state_dict, prefix, *_):
        state_dict[prefix + "scale"] = state_dict[prefix + "scale"] * 2

    model = Net()
    model.register_load_state_dict_pre_hook(doubled)

    fail(model, path, UnsupportedError, "computes `scale` from the data")


@pytest.mark.parametrize("kind", ["copies", "sparse", "lazy"])
def test_tensors_that_cannot_be_written_to_are_refused(kind, path):
    model = Net()
    if kind == "copies":
        model._register_state_dict_hook(lambda module, state, *_: state.update(scale=state["scale"].clone()))
    elif kind == "sparse":
        model.register_buffer("sparse", torch.eye(3).to_sparse())
    else:
        model.lazy = nn.LazyLinear(3)

    with pytest.raises(UnsupportedError, match=r"copy|layout|lazy"):
        load_into(model, path)


def test_progress_counts_the_bytes_of_the_checkpoint(path):
    for options in ({}, {"dtype": "bf16"}, {"assign": True}):
        seen: list[tuple[int, int]] = []
        report = load_into(Net(), path, progress=lambda *step, seen=seen: seen.append(step), **options)
        assert seen == sorted(seen)
        assert seen[-1] == (report.nbytes, report.nbytes)


def test_eager_tensors_are_for_load_state_dict():
    with pytest.raises(TypeError, match=r"use model\.load_state_dict"):
        load_into(Net(), Net().state_dict())


def test_cast_views_are_loaded(original, path):
    for framework in ("numpy", "torch"):
        model = Net()
        load_into(model, tensorkeep.open(path, framework=framework).cast("f16"))
        assert torch.equal(model.embed.weight, original.embed.weight.half().float())
        load_into(model, tensorkeep.open(path, framework=framework).cast("f16"), assign=True)
        assert model.embed.weight.dtype == torch.float16


def test_a_model_that_deepspeed_has_partitioned_is_refused_with_the_way_to_gather_it(tmp_path):
    path = saved({"weight": torch.ones(2, 3), "bias": torch.ones(2)}, tmp_path / "model.safetensors")
    model = torch.nn.Linear(3, 2)
    for number, parameter in enumerate(model.parameters()):  # as ZeRO-3 leaves them between steps
        parameter.ds_id, parameter.ds_shape = number, parameter.shape
        parameter.data = torch.empty(0)

    for use in (
        lambda: load_into(model, path),
        lambda: load_sharded(model, path),
        lambda: capture(model=model),
        lambda: save_model(model, tmp_path / "new.safetensors"),
    ):
        with pytest.raises(UnsupportedError, match=r"`weight` is partitioned.*\[2, 3\].*GatheredParameters"):
            use()
    assert not (tmp_path / "new.safetensors").exists()
    model.weight.data, model.bias.data = torch.zeros(2, 3), torch.zeros(2)  # gathered
    load_into(model, path)
    assert model.weight.sum() == 6


def test_what_is_not_a_model_is_refused(path):
    with pytest.raises(TypeError, match=r"a model of torch is needed \(torch\.nn\.Module\), not dict"):
        load_into({"w": torch.ones(3)}, path)
