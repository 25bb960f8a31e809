"""Names and shapes of a model held against those of a checkpoint."""

from __future__ import annotations

import pickle

import pytest

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.models._match import Match, ShapeMismatch, Wanted, match_tensors, mismatch_error

ONE = (1,)


def match(wanted, available, noted=None, covered=()):
    return match_tensors(wanted, available, noted or {}, covered)


@pytest.mark.parametrize(
    ("names", "available", "noted", "sources", "missing", "unexpected"),
    [
        ([("a",)], ["a"], {}, ["a"], (), ()),
        ([("a",), ("b",)], ["b"], {}, [None, "b"], ("a",), ()),
        ([("a",)], ["a", "c"], {}, ["a"], (), ("c",)),
        ([("a", "b")], ["a"], {}, ["a"], (), ()),
        ([("a", "b")], ["b"], {}, ["b"], (), ()),
        ([("a", "b")], ["b", "a"], {}, ["b"], (), ()),
        ([("a", "b")], [], {}, [None], ("a", "b"), ()),
        ([("a",), ("b",)], ["b"], {"a": "b"}, ["b", "b"], (), ()),
        ([("a",)], ["b"], {"a": "b"}, ["b"], (), ()),
        ([("a",)], ["a", "b"], {"a": "b"}, ["a"], (), ("b",)),
        ([("a",)], ["c"], {"a": "b"}, [None], ("a",), ("c",)),
    ],
)
def test_names(names, available, noted, sources, missing, unexpected):
    found = match([Wanted(each, ONE) for each in names], dict.fromkeys(available, ONE), noted)

    assert found.sources == tuple(sources)
    assert (found.missing, found.unexpected, found.mismatched) == (missing, unexpected, ())


def test_a_tensor_of_another_shape_is_neither_missing_nor_unexpected():
    found = match([Wanted(("a",), (2, 3))], {"a": (3, 2)})

    assert found == Match((None,), (), (), (ShapeMismatch("a", (2, 3), (3, 2)),))


def test_of_tied_names_one_that_fits_is_taken():
    found = match([Wanted(("a", "b"), (2,))], {"a": (2,), "b": (3,)})

    assert found.sources == ("a",)
    assert found.mismatched == (ShapeMismatch("b", (2,), (3,)),)


def test_a_kept_name_of_another_shape_does_not_stand_in():
    found = match([Wanted(("a",), (2,)), Wanted(("b",), (3,))], {"b": (3,)}, {"a": "b"})

    assert found.sources == (None, "b")
    assert found.missing == ("a",)


def test_what_is_optional_or_covered_is_not_missing():
    found = match([Wanted(("a",), ONE, is_optional=True), Wanted(("b",), ONE)], {}, covered={"b"})

    assert found.missing == ()


def test_any_shape_will_do_for_what_has_none():
    assert match([Wanted(("a",), None)], {"a": (7, 7)}).sources == ("a",)


def error_of(**facts):
    return mismatch_error(Match((), **{"missing": (), "unexpected": (), "mismatched": (), **facts}), "Net", "x.st")


def test_the_message_names_what_was_meant():
    error = error_of(missing=("layer.0.weight",), unexpected=("layer.0.wieght",))

    assert str(error) == (
        "the checkpoint does not fit Net: 1 missing: `layer.0.weight` (did you mean `layer.0.wieght`?);"
        " 1 unexpected: `layer.0.wieght` (x.st)"
    )


def test_the_message_is_bounded_and_the_fields_are_not():
    names = tuple(f"layers.{place}.weight" for place in range(100_000))
    error = error_of(missing=names, unexpected=tuple(name + "_g" for name in names))

    assert len(str(error)) < 2000
    assert "100,000 missing" in str(error)
    assert error.missing == names


@pytest.mark.parametrize(
    ("missing", "unexpected", "advice"),
    [
        (("a.w", "b.w"), ("module.b.w", "module.a.w"), "strip_prefix='module.'"),
        (("_orig_mod.a", "_orig_mod.b"), ("a", "b"), "add_prefix='_orig_mod.'"),
        (("a.w", "b.w"), ("module.a.w", "other.b.w"), None),
        (("a.w",), ("aa.w",), None),
    ],
)
def test_the_advice_is_a_prefix_that_makes_all_names_fit(missing, unexpected, advice):
    hint = error_of(missing=missing, unexpected=unexpected).hint

    assert (advice is None and hint is None) or advice in hint


def test_the_error_pickles_with_its_names():
    error = error_of(missing=("a",), mismatched=(ShapeMismatch("b", (1,), (2,)),))

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is StateDictMismatchError
    assert isinstance(again, RuntimeError)
    assert (str(again), again.missing, again.mismatched) == (str(error), ("a",), (("b", (1,), (2,)),))
