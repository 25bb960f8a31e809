"""Which tensor goes into which file: as huggingface_hub does it, evenly, in pieces, or as in another checkpoint."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_utils import _add_variant
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from tensorkeep.errors import UnsupportedError
from tensorkeep.layout import (
    Piece,
    Shard,
    ShardPlan,
    TensorSize,
    index_name,
    plan_from_layout,
    plan_shards,
    shard_name,
    weights_name,
)

names = st.text("abc.[]:01", min_size=1, max_size=6)
limits = st.integers(1, 40)
flat_sizes = st.dictionaries(names, st.integers(0, 60), max_size=12).map(
    lambda n_bytes: {name: TensorSize(n, (n,)) for name, n in n_bytes.items()}
)


def files_of(plan: ShardPlan) -> dict[str, list[str]]:
    return {shard.file: [*shard.tensors, *(piece.name for piece in shard.pieces)] for shard in plan.shards}


def sizes_of(**nbytes: int) -> dict[str, TensorSize]:
    return {name: TensorSize(n, (n,)) for name, n in nbytes.items()}


def shard_nbytes(plan: ShardPlan, sizes: dict[str, TensorSize]) -> list[int]:
    return [
        sum(sizes[name].nbytes for name in shard.tensors)
        + sum(sizes[piece.tensor].nbytes * piece.n_rows // sizes[piece.tensor].shape[0] for piece in shard.pieces)
        for shard in plan.shards
    ]


full_sizes = st.dictionaries(names, st.integers(1, 60), min_size=1, max_size=12).map(
    lambda n_bytes: {name: TensorSize(n, (n,)) for name, n in n_bytes.items()}
)
"""Of tensors with elements: huggingface_hub takes all empty ones for one storage, and puts them in one file."""


@given(sizes=full_sizes, limit=limits, variant=st.sampled_from([None, "fp16"]))
def test_files_are_those_of_huggingface_hub(sizes: dict[str, TensorSize], limit: int, variant: str | None) -> None:
    state_dict = {name: torch.zeros(size.shape, dtype=torch.uint8) for name, size in sizes.items()}
    pattern = _add_variant(SAFE_WEIGHTS_NAME, variant).replace(".safetensors", "{suffix}.safetensors")
    reference = split_torch_state_dict_into_shards(state_dict, max_shard_size=limit, filename_pattern=pattern)

    plan = plan_shards(sizes, max_shard_nbytes=limit, variant=variant)

    assert files_of(plan) == reference.filename_to_tensors
    assert list(files_of(plan)) == list(reference.filename_to_tensors)
    assert plan.weight_map == reference.tensor_to_filename
    assert (plan.index_file is not None) == reference.is_sharded
    assert plan.splits == {}


def test_a_large_tensor_stands_before_the_shard_that_is_being_filled() -> None:
    plan = plan_shards(sizes_of(a=3, large=99, b=3, c=6), max_shard_nbytes=10)

    assert files_of(plan) == {
        "model-00001-of-00003.safetensors": ["large"],
        "model-00002-of-00003.safetensors": ["a", "b"],
        "model-00003-of-00003.safetensors": ["c"],
    }
    assert plan.index_file == "model.safetensors.index.json"


@pytest.mark.parametrize("balance", [False, True])
@pytest.mark.parametrize("split_large", [False, True])
def test_no_tensors_are_one_file(balance: bool, split_large: bool) -> None:
    plan = plan_shards({}, max_shard_nbytes=10, balance=balance, split_large=split_large)

    assert plan == ShardPlan((Shard("model.safetensors", ()),), None, {})
    assert plan.weight_map == {}


def smallest_largest(nbytes: list[int], n_parts: int) -> int:
    """Try every way to cut a list into contiguous parts."""
    best = sum(nbytes)
    for cuts in combinations(range(1, len(nbytes)), n_parts - 1):
        bounds = [0, *cuts, len(nbytes)]
        best = min(best, max(sum(nbytes[start:stop]) for start, stop in pairwise(bounds)))
    return best


@given(sizes=flat_sizes, limit=limits)
def test_balanced_shards_cannot_be_more_even(sizes: dict[str, TensorSize], limit: int) -> None:
    greedy = plan_shards(sizes, max_shard_nbytes=limit)
    plan = plan_shards(sizes, max_shard_nbytes=limit, balance=True)
    shared = [name for name, size in sizes.items() if size.nbytes <= limit]
    groups = [shard.tensors for shard in plan.shards if not set(shard.tensors) - set(shared)]
    largest = max((sum(sizes[name].nbytes for name in group) for group in groups), default=0)

    assert len(plan.shards) == len(greedy.shards)
    assert [name for group in groups for name in group] == shared
    assert max(shard_nbytes(plan, sizes)) <= max(shard_nbytes(greedy, sizes))
    assert largest == smallest_largest([sizes[name].nbytes for name in shared], max(1, len(groups)))
    assert sorted(plan.weight_map) == sorted(sizes)


def test_balance_of_a_long_list() -> None:
    sizes = {f"layer.{number}": TensorSize(1000 + number % 7, (10,)) for number in range(3000)}

    greedy = shard_nbytes(plan_shards(sizes, max_shard_nbytes=999_000), sizes)
    even = shard_nbytes(plan_shards(sizes, max_shard_nbytes=999_000, balance=True), sizes)

    assert len(greedy) == len(even) == 4
    assert min(greedy) < 20_000
    assert max(even) - min(even) < 4_000


shapes = st.lists(st.integers(0, 12), max_size=3).map(tuple)


@st.composite
def packed_sizes(draw: st.DrawFn) -> dict[str, TensorSize]:
    """Tensors of any element width, in whole bytes as every format holds them."""
    sizes = {}
    for name in draw(st.lists(st.text("ab", min_size=1, max_size=3), unique=True, max_size=5)):
        shape, bits = draw(shapes), draw(st.sampled_from([4, 6, 8, 16, 64]))
        n_bits = bits * torch.Size(shape).numel()
        if n_bits % 8 == 0:
            sizes[name] = TensorSize(n_bits // 8, shape)
    return sizes


@given(sizes=packed_sizes(), limit=limits, balance=st.booleans())
def test_pieces_cover_each_large_tensor_and_fit(sizes: dict[str, TensorSize], limit: int, balance: bool) -> None:
    plan = plan_shards(sizes, max_shard_nbytes=limit, split_large=True, balance=balance)
    pieces = {piece.name: piece for shard in plan.shards for piece in shard.pieces}
    whole = [name for shard in plan.shards for name in shard.tensors]

    assert sorted([*whole, *plan.splits]) == sorted(sizes)
    assert sorted(pieces) == sorted(name for names in plan.splits.values() for name in names)
    for tensor, names_in_order in plan.splits.items():
        size = sizes[tensor]
        of_tensor = [pieces[name] for name in names_in_order]
        steps = [n for n in range(1, size.shape[0] + 1) if size.nbytes * n % size.shape[0] == 0]
        assert size.nbytes > limit
        assert len(of_tensor) > 1
        assert [row for piece in of_tensor for row in range(piece.start, piece.stop)] == list(range(size.shape[0]))
        for piece in of_tensor:
            assert piece.tensor == tensor
            assert piece.n_rows in steps
            assert size.nbytes * piece.n_rows <= limit * size.shape[0] or piece.n_rows == steps[0]
    for name in whole:
        size = sizes[name]
        can_be_cut = size.shape and size.nbytes > limit and size.rows_per_step < size.shape[0]
        assert not can_be_cut, f"{name} is whole though it is above the limit"


def test_pieces_say_what_they_are() -> None:
    plan = plan_shards({"big.weight": TensorSize(80, (20, 4))}, max_shard_nbytes=32, split_large=True, base="m")

    assert files_of(plan) == {
        "m-00001-of-00003.safetensors": ["big.weight[0:8]"],
        "m-00002-of-00003.safetensors": ["big.weight[8:16]"],
        "m-00003-of-00003.safetensors": ["big.weight[16:20]"],
    }
    assert plan.shards[1].pieces == (Piece.of_rows("big.weight", 8, 16),)
    assert plan.splits == {"big.weight": ("big.weight[0:8]", "big.weight[8:16]", "big.weight[16:20]")}


def test_rows_of_packed_elements_are_cut_at_whole_bytes() -> None:
    sizes = {"fp4": TensorSize(15, (10, 3))}  # a row is 12 bits

    plan = plan_shards(sizes, max_shard_nbytes=5, split_large=True)

    assert plan.splits == {"fp4": ("fp4[0:2]", "fp4[2:4]", "fp4[4:6]", "fp4[6:8]", "fp4[8:10]")}
    assert shard_nbytes(plan, sizes) == [3, 3, 3, 3, 3]


def test_a_piece_never_takes_the_name_of_a_tensor() -> None:
    sizes = sizes_of(**{"w": 20, "w[0:10]": 3})

    with pytest.raises(UnsupportedError, match=r"w\[0:10\]"):
        plan_shards(sizes, max_shard_nbytes=10, split_large=True)
    assert len(plan_shards(sizes, max_shard_nbytes=10).shards) == 2


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "a\\b", "/a", "../a", "C:a", "a..b", "a\0", "a\n", "a\u2028"])
def test_names_that_are_no_part_of_a_file_name_are_refused(part: str) -> None:
    for arguments in ({"base": part}, {"variant": part}):
        for limit in (1, 100):
            with pytest.raises(UnsupportedError, match=next(iter(arguments))):
                plan_shards(sizes_of(a=5, b=5), max_shard_nbytes=limit, **arguments)


@pytest.mark.parametrize("variant", [None, "fp16", "my-variant_2"])
def test_names_are_those_of_transformers(variant: str | None) -> None:
    stem = _add_variant(SAFE_WEIGHTS_NAME, variant).removesuffix(".safetensors")

    assert weights_name("model", variant) == _add_variant(SAFE_WEIGHTS_NAME, variant)
    assert index_name("model", variant) == _add_variant(SAFE_WEIGHTS_INDEX_NAME, variant)
    assert shard_name("model", 7, 123, variant) == f"{stem}-00007-of-00123.safetensors"
    assert shard_name("model", 100_000, 100_001, variant) == f"{stem}-100000-of-100001.safetensors"


@given(sizes=flat_sizes.filter(bool), limit=limits, split_large=st.booleans())
def test_the_layout_of_a_plan_gives_that_plan(sizes: dict[str, TensorSize], limit: int, split_large: bool) -> None:
    try:
        plan = plan_shards(sizes, max_shard_nbytes=limit, split_large=split_large)
    except UnsupportedError:  # a piece has the name of another tensor
        return

    again = plan_from_layout(
        sizes, dict(sorted(plan.weight_map.items())), index_file="model.safetensors.index.json", splits=plan.splits
    )

    assert set(files_of(again)) == set(files_of(plan))
    assert again.weight_map == plan.weight_map
    assert again.splits == plan.splits


def test_a_layout_keeps_what_is_there_and_leaves_out_the_rest() -> None:
    layout = {"gone": "a.safetensors", "x": "c.safetensors", "y": "b.safetensors", "z": "c.safetensors"}

    plan = plan_from_layout(sizes_of(z=1, y=2, x=3), layout, index_file="my.index.json")

    assert files_of(plan) == {"b.safetensors": ["y"], "c.safetensors": ["z", "x"]}
    assert plan.index_file == "my.index.json"


def test_tensors_without_a_place_are_named() -> None:
    with pytest.raises(UnsupportedError, match=r"no place for 2 of the tensors.*new, other") as caught:
        plan_from_layout(sizes_of(new=1, x=3, other=1), {"x": "a"}, index_file="i.json")

    assert caught.value.tensor == "new"


@pytest.mark.parametrize("file", ["../a", "/a", "sub/a", "..", "", "C:a", "a\\b", "i.json"])
def test_a_layout_writes_nowhere_but_in_the_directory(file: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be written"):
        plan_from_layout(sizes_of(x=3), {"x": file}, index_file="i.json")


@pytest.mark.parametrize(
    "pieces",
    [
        *(["w[0:10]"], ["w[0:10]", "w[10:21]"], ["w[0:10]", "w[11:20]"], ["w[1:20]"], ["v[0:20]"], []),
        *(["w[0:9]", "w[9:20]"], ["w[0:20]", "w[20:20]"], ["w[00:20]"], ["w[0:20] "], ["w[:20]"]),
    ],
)
def test_a_layout_that_cuts_other_rows_is_refused(pieces: list[str]) -> None:
    sizes = {"w": TensorSize(30, (20, 3))}  # 4-bit elements: 2 rows fill 3 bytes

    with pytest.raises(UnsupportedError, match="pieces of `w` do not fit"):
        plan_from_layout(sizes, dict.fromkeys(pieces, "a"), index_file="i.json", splits={"w": pieces})
