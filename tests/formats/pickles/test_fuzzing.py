"""Some thousands of mutated pickles and files of pickles; `make fuzz` reads a million."""

from __future__ import annotations

from random import Random

import pytest

from fuzz.pickle_mutations import FILE_MUTATIONS, MUTATIONS, mutated
from fuzz.pickle_seeds import files, seeds
from fuzz.pickles import Tally, run
from fuzz.pickles_apart import Reader, read


@pytest.mark.parametrize(("reader", "count"), [("machine", 12_000), ("file", 6_000)])
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_bytes_give_a_value_or_an_error_of_ours(reader: Reader, count: int, seed: int) -> None:
    tally = Tally()

    run(count, seed, reader, tally)

    if tally.failures:
        pytest.fail(tally.report(), pytrace=False)
    assert sum(tally.outcomes.values()) == count
    assert tally.outcomes["value"] > count // 50
    assert tally.outcomes["PickleError"] > count // 50


def test_what_is_mutated_is_read_before() -> None:
    for parts in seeds():
        read(b"".join(parts), "machine", "record")
    for file in files():
        read(file, "file", "record")
    assert len(seeds()) > 100
    assert len(files()) > 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_mutation_of_opcodes_changes_something(mutation) -> None:
    rng = Random(0)
    pool = seeds()
    n_changed = 0
    for original in pool[:50]:
        parts = list(original)
        mutation(rng, parts, pool)
        n_changed += b"".join(parts) != b"".join(original)

    assert n_changed > 5


@pytest.mark.parametrize("mutation", dict.fromkeys(FILE_MUTATIONS), ids=lambda mutation: mutation.__name__)
def test_every_mutation_of_files_changes_something(mutation) -> None:
    rng = Random(0)
    n_changed = 0
    for original in files():
        data = bytearray(original)
        mutation(rng, data)
        n_changed += bytes(data) != original

    assert n_changed > 5


def test_equal_seeds_give_equal_pickles() -> None:
    pool = seeds()

    assert [mutated(Random(5), pool) for _ in range(3)] == [mutated(Random(5), pool) for _ in range(3)]
