"""Random headers, valid and broken: the verdict is the reference's, except where `header_verdicts` says why not."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from fuzz.header_documents import valid_sample
from fuzz.header_mutations import mutated
from fuzz.header_verdicts import DIFFERENCES, judge
from fuzz.headers import run
from tests.support.soak import rounds

RANDOM = st.randoms(use_true_random=False)


@given(rng=RANDOM)
def test_a_valid_header_is_read_as_the_reference_reads_it(rng: Random) -> None:
    sample = valid_sample(rng)

    verdict = judge(sample.file)

    assert verdict.accepted
    assert verdict.difference is None
    assert verdict.wrong is None


@given(rng=RANDOM)
@settings(max_examples=rounds(75, 3_000))
def test_a_broken_header_gets_the_verdict_of_the_reference(rng: Random) -> None:
    assert judge(mutated(rng).file).wrong is None


@pytest.mark.parametrize("seed", range(4))
def test_many_broken_headers(seed: int) -> None:
    tally = run(5_000, seed, traces_memory=False)

    if tally.failures:
        pytest.fail(tally.report(), pytrace=False)
    assert sum(verdicts["accepted"] for verdicts in tally.verdicts.values()) > 500
    assert sum(verdicts["refused"] for verdicts in tally.verdicts.values()) > 2_000
    assert len(tally.differences) >= len(DIFFERENCES) - 1, "a listed difference that no file shows is not one"
