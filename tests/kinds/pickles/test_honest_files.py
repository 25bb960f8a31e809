"""What people save is read as running it would: in every form and protocol, of every dtype and type."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tensorkeep.errors import DtypeError
from tensorkeep.kinds.pickles import open_pickle
from tests.support.for_each import for_each
from tests.support.pickles.honest_arrays import ARRAYS
from tests.support.pickles.honest_files import FORMS, PROTOCOLS, pickled, run, saved
from tests.support.pickles.honest_objects import OBJECTS, Settings
from tests.support.pickles.honest_tensors import NOT_IN_LEGACY, TENSORS
from tests.support.pickles.same_value import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")
TORCH_CANNOT_READ = {(what, form) for what in TENSORS for form in FORMS if what[:6] == "nested" and form[:3] == "leg"}
"""It looks at the sizes of nested tensors before it has read them."""
ALL = TENSORS | ARRAYS | OBJECTS


@pytest.mark.parametrize("what", ALL)
@for_each("form", FORMS)
def test_what_torch_saves_is_read_as_running_it_would(what: str, form: str) -> None:
    if form.startswith("legacy") and what in NOT_IN_LEGACY:
        return
    if form in {"zip-3", "zip-4"} and what not in OBJECTS:
        return
    value = ALL[what]()
    file = saved(value, form)
    theirs = value if (what, form) in TORCH_CANNOT_READ else run(file)
    with open_pickle(file, framework="torch") as ours:
        assert ours.form == form.partition("-")[0]
        assert_same(ours.load_tree(), theirs, protocol=FORMS[form]["pickle_protocol"])
        assert_same(ours.tree, theirs, protocol=FORMS[form]["pickle_protocol"])


def test_a_tensor_that_torch_cannot_load_back_is_still_read() -> None:
    file = open_pickle(saved(torch.nested.nested_tensor([])), framework="torch")
    assert file.tree.kind == "nested"


@pytest.mark.parametrize("what", sorted(ALL.keys() - NOT_IN_LEGACY))  # in a bare pickle storages are legacy streams
@for_each("protocol", PROTOCOLS)
def test_bare_pickles_are_read_as_running_them_would(what: str, protocol: int) -> None:
    if protocol in {3, 4} and what not in OBJECTS:
        return
    file = pickled({"here": ALL[what]()}, protocol)
    theirs = pickle.loads(file)
    with open_pickle(file, framework="torch") as ours:
        assert ours.form == "pickle"
        assert_same(ours.load_tree(), theirs, protocol=protocol)
        assert_same(ours.tree, theirs, protocol=protocol)


@pytest.mark.parametrize("what", [what for what in TENSORS if "complex32" not in what])
@for_each("form", ["zip-2", "legacy-2"])
def test_numpy_gets_what_torch_gets(what: str, form: str) -> None:
    if form == "legacy-2" and what in NOT_IN_LEGACY:
        return
    file = saved(TENSORS[what](), form)
    with open_pickle(file) as in_numpy, open_pickle(file, framework="torch") as in_torch:
        assert list(in_numpy) == list(in_torch)
        for name, array in in_numpy.load().items():
            tensor = in_torch[name].load()
            is_packed = in_numpy[name].dtype == "F4"  # one element of NumPy's takes a byte, two of torch's do
            assert array.shape == (in_numpy[name].shape if is_packed else tuple(tensor.shape))
            found = (
                np.packbits(np.unpackbits(array.view("u1")).reshape(-1, 2, 8)[:, ::-1, 4:]) if is_packed else array
            )
            assert found.tobytes() == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            assert array.flags.writeable
        assert repr(in_numpy.load_tree())


@pytest.mark.parametrize("what", ["matrix of torch.complex32", "one torch.complex32"])
def test_numpy_has_no_complex_numbers_of_two_halves(what: str) -> None:
    with open_pickle(saved({"c": TENSORS[what](), "w": torch.ones(1)})) as file:
        assert file["c"].dtype == "C32"
        with pytest.raises(DtypeError, match="NumPy has no dtype"):
            file["c"].load()
        with pytest.raises(DtypeError, match="NumPy has no dtype"):
            file.load_tree()
        assert file["w"].load() == 1


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a number": lambda value: value["w"].__setitem__(1, 5.0),
    "the sign of a zero": lambda value: value["w"].__setitem__(0, -0.0),
    "a key": lambda value: value.update(other=1),
    "the type of a container": lambda value: value.update(items=tuple(value["items"])),
    "the order of keys": lambda value: value.update(items=value.pop("items")),
    "memory that was shared": lambda value: value.update(part=value["part"].clone()),
    "memory that was not shared": lambda value: value.update(alone=value["w"][:2]),
    "one object made two": lambda value: value.update(again=list(value["again"])),
    "two objects made one": lambda value: value.update(copy=value["items"]),
    "a dtype": lambda value: value.update(alone=value["alone"].to(torch.float64)),
    "gradients": lambda value: value["alone"].requires_grad_(),
    "strides": lambda value: value.update(matrix=value["matrix"].t().contiguous().t()),
    "a member of a record": lambda value: value["settings"].state.update(rate=0.25),
    "an integer for a bool": lambda value: value.update(flag=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_comparison_sees(change: str) -> None:
    """What all tests here rest on fails where two values differ."""
    items = [1, 2]
    weight = torch.arange(4.0)
    value = {"w": weight, "part": weight[1:], "alone": torch.arange(2.0), "matrix": torch.eye(3), "items": items}
    value |= {"again": items, "copy": [1, 2], "settings": Settings(0.5, [1]), "flag": True}
    file = saved(value)
    ours = open_pickle(file, framework="torch").load_tree()
    assert_same(ours, run(file))
    CHANGES[change](ours)
    with pytest.raises(AssertionError):
        assert_same(ours, run(file))
