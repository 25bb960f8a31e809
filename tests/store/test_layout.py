"""Which tensor goes into which file of a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.store import group_tensors

MB = 10**6


def test_large_and_small_tensors_of_each_part_lie_apart() -> None:
    sizes = {}
    for n in range(3):
        sizes[f"model.layers.{n}.weight"] = 30 * MB
        sizes[f"model.layers.{n}.lora_A"] = MB // 10
        sizes[f"optimizer.state.{n}.exp_avg"] = MB // 10

    assert group_tensors(sizes, max_nbytes=500 * MB) == [
        [f"model.layers.{n}.weight" for n in range(3)],
        [f"model.layers.{n}.lora_A" for n in range(3)],
        [f"optimizer.state.{n}.exp_avg" for n in range(3)],
    ]


def test_a_file_is_full_at_its_limit_and_a_larger_tensor_stands_alone() -> None:
    sizes = {"a": 10, "b": 10, "c": 25, "d": 10, "e": 10}

    assert group_tensors(sizes, max_nbytes=20) == [["a", "b"], ["c"], ["d", "e"]]


def test_files_of_the_step_before_are_kept_as_they_are() -> None:
    sizes = {"x": 3, "b": 1, "a": 2, "y": 4}

    assert group_tensors(sizes, max_nbytes=100, before=[["a", "gone"], ["b"], ["none"]]) == [["a"], ["b"], ["x", "y"]]


def test_a_file_of_which_a_part_rests_is_taken_apart() -> None:
    sizes = {f"m.{name}": MB for name in "abcdef"}
    before = [["m.a", "m.b", "m.c", "m.d"], ["m.e", "m.f"]]
    resting = {"m.a", "m.c", "m.e", "m.f"}

    after = group_tensors(sizes, max_nbytes=9 * MB, before=before, resting=resting)

    assert after == [["m.e", "m.f"], ["m.a", "m.c"], ["m.b", "m.d"]]
    assert group_tensors(sizes, max_nbytes=9 * MB, before=after, resting=resting) == after


def test_a_file_is_left_alone_if_little_of_it_rests() -> None:
    sizes = {"m.large": 30 * MB, "m.count": 8}

    assert group_tensors(sizes, max_nbytes=99 * MB, before=[["m.large", "m.count"]], resting={"m.count"}) == [
        ["m.large", "m.count"]
    ]


def test_files_do_not_become_more_and_more() -> None:
    sizes = {f"m.{n}": MB for n in range(200)}

    groups = group_tensors(sizes, max_nbytes=50 * MB, before=[[name] for name in sizes])

    assert [len(group) for group in groups] == [50] * 4


names = st.lists(st.text("ab.", min_size=1, max_size=4), unique=True, max_size=12)


@given(names=names, data=st.data())
def test_every_tensor_has_one_place(names: list[str], data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(0, 2**22)) for name in names}
    older = data.draw(st.permutations([*names, "gone"]))
    cut = data.draw(st.integers(0, len(older)))
    resting = data.draw(st.sets(st.sampled_from(names))) if names else set()

    groups = group_tensors(sizes, max_nbytes=2**22, before=[older[:cut], older[cut:]], resting=resting)

    assert sorted(name for group in groups for name in group) == sorted(names)
    assert all(groups)
