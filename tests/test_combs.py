# SPDX-License-Identifier: Apache-2.0
"""The three things done with combs, each against the set of numbers that a comb stands for."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from layout_kernels.combs import Comb, CutsDoNotNestError, Digit, between, clip, meet

Numbers = dict[int, tuple[int, ...]]
randoms = st.randoms(use_true_random=False)
some = settings(derandomize=True, deadline=None, max_examples=150, phases=(Phase.generate, Phase.shrink))


def numbers(comb: Comb) -> Numbers:
    """Every number of a comb with its payload."""
    found: Numbers = {}
    for xs in itertools.product(*(range(digit.extent) for digit in comb.digits)):
        number = comb.start + sum(digit.weight * x for digit, x in zip(comb.digits, xs, strict=True))
        steps = [[x * step for step in digit.payload] for digit, x in zip(comb.digits, xs, strict=True)]
        assert number not in found, f"{comb} holds {number} twice"
        found[number] = tuple(map(sum, zip(comb.origin, *steps, strict=True)))
    return found


def chain(r: Random) -> list[int]:
    return [r.choice([2, 2, 3, 4]) for _ in range(r.randrange(1, 5))]


def comb_of(r: Random, factors: list[int], *, full: bool = False) -> Comb:
    """A comb over a mixed radix made of neighbouring factors: every digit a range of its values."""
    stops = sorted(r.sample(range(1, len(factors)), r.randrange(len(factors))))
    radix = [math.prod(factors[a:b]) for a, b in itertools.pairwise([0, *stops, len(factors)])]
    start, digits = 0, []
    for place, extent in enumerate(radix):
        weight = math.prod(radix[place + 1 :])
        low = 0 if full else r.randrange(extent)
        high = extent if full else r.randrange(low, extent) + 1
        start += low * weight
        if high - low > 1:
            digits.append(Digit(weight, high - low, (r.randrange(50), r.randrange(50))))
    return Comb(start, tuple(digits), (r.randrange(50), 0))


def assert_met(one: Comb, two: Comb) -> None:
    """Pairs hold equal numbers digit for digit, each with its side's payload; the rest is what is left."""
    pairs, rest = meet(one, two)
    ours, theirs = numbers(one), numbers(two)
    matched: Numbers = {}
    for a, b in pairs:
        assert [d.extent for d in a.digits] == [d.extent for d in b.digits]
        assert list(numbers(a)) == list(numbers(b)), "a pair's elements do not stand in one order"
        assert all(ours[n] == payload for n, payload in numbers(a).items())
        assert all(theirs[n] == payload for n, payload in numbers(b).items())
        assert not matched.keys() & numbers(a).keys(), "a number is matched twice"
        matched |= numbers(a)
    assert matched.keys() == ours.keys() & theirs.keys()
    left = [numbers(comb) for comb in rest]
    assert sum(map(len, left)) == len(ours) - len(matched), "the rest overlaps"
    assert {n: p for part in left for n, p in part.items()} == {n: p for n, p in ours.items() if n not in theirs}


@some
@given(r=randoms)
def test_last_and_size(r: Random) -> None:
    comb = comb_of(r, chain(r))
    assert comb.last == max(numbers(comb))
    assert comb.size == len(numbers(comb))


@some
@given(r=randoms, low=st.integers(-5, 150), high=st.integers(-5, 150))
def test_clip_keeps_what_lies_between(r: Random, low: int, high: int) -> None:
    comb = comb_of(r, chain(r))
    parts = [numbers(part) for part in clip(comb, low, high)]
    assert {n: p for part in parts for n, p in part.items()} == {
        n: p for n, p in numbers(comb).items() if low <= n < high
    }
    assert sum(map(len, parts)) == len({n for part in parts for n in part}), "parts overlap"


@pytest.mark.parametrize(
    ("low", "high", "parts"),
    [(0, 24, 1), (4, 20, 1), (5, 20, 2), (5, 19, 3), (5, 7, 1), (3, 5, 2), (24, 30, 0), (7, 7, 0)],
)
def test_clip_makes_few_parts(low: int, high: int, parts: int) -> None:
    """At most a head, whole windows and a tail: a shard that cuts through a product is a few boxes."""
    comb = Comb(0, (Digit(4, 6, (1,)), Digit(1, 4, (6,))), (0,))
    assert len(clip(comb, low, high)) == parts


def test_between_fixes_the_highest_digit() -> None:
    comb = Comb(5, (Digit(10, 4, (7,)), Digit(1, 3, (2,))), (1,))
    assert between(comb, 1, 3) == Comb(15, (Digit(10, 2, (7,)), Digit(1, 3, (2,))), (8,))
    assert between(comb, 2, 3) == Comb(25, (Digit(1, 3, (2,)),), (15,))


@some
@given(r=randoms)
def test_cuts_of_one_chain_always_meet(r: Random) -> None:
    """Two cuts that group the same factors nest, whatever ranges of their digits are held."""
    factors = chain(r)
    assert_met(comb_of(r, factors), comb_of(r, factors))


@some
@given(r=randoms)
def test_everything_meets_the_whole(r: Random) -> None:
    """A plain range has no cut, so nothing can fail to nest in it."""
    factors = chain(r)
    part, size = comb_of(r, factors), math.prod(factors)
    whole = Comb(0, (Digit(1, size, (3, 0)),), (0, 0))
    assert_met(part, whole)
    assert_met(whole, part)
    assert not meet(part, whole)[1]


@some
@given(r=randoms)
def test_any_two_combs_meet_rightly_or_not_at_all(r: Random) -> None:
    one, two = comb_of(r, chain(r)), comb_of(r, chain(r))
    try:
        meet(one, two)
    except CutsDoNotNestError:
        return
    assert_met(one, two)


@pytest.mark.parametrize(("outer", "inner"), [((2, 3), (3, 2)), ((4, 6), (6, 4)), ((2, 5), (5, 2))])
def test_cuts_that_do_not_nest_are_refused(outer: tuple[int, int], inner: tuple[int, int]) -> None:
    def transposed(cut: tuple[int, int]) -> Comb:
        return Comb(0, (Digit(cut[1], cut[0], (1,)), Digit(1, cut[1], (cut[0],))), (0,))

    with pytest.raises(CutsDoNotNestError) as error:
        meet(transposed(outer), transposed(inner))
    assert set(error.value.args) == {outer[1], inner[1]}


@pytest.mark.parametrize("inner", range(4))
def test_one_value_of_an_inner_digit_meets_its_own_cut(inner: int) -> None:
    """A shard of the inner part of a cut: one number of every window, wherever in the window it stands."""
    cut = Comb(0, (Digit(4, 5, (4,)), Digit(1, 4, (1,))), (0,))
    shard = Comb(inner, (Digit(4, 5, (1,)),), (0,))
    pairs, rest = meet(shard, cut)
    assert not rest
    assert [list(numbers(theirs)) for _, theirs in pairs] == [[inner + 4 * x for x in range(5)]]


def test_a_period_that_is_no_multiple_of_the_step_below() -> None:
    """Tiles of 4 that fill periods of 6 only in part, as a padded shard of every rank has them."""
    head = Comb(0, (Digit(6, 3, (8,)), Digit(1, 4, (1,))), (0,))
    tail = Comb(4, (Digit(6, 3, (8,)), Digit(1, 2, (1,))), (4,))
    whole = Comb(0, (Digit(1, 18, (1,)),), (0,))
    halves = Comb(0, (Digit(2, 9, (2,)), Digit(1, 2, (1,))), (0,))
    for other in (whole, halves):
        assert_met(head, other)
        assert_met(tail, other)
        assert_met(other, tail)
    assert meet(head, tail) == ([], [head])


def ranges(r: Random, size: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(sorted({0, size, *(r.randrange(size + 1) for _ in range(2))})))


@some
@given(r=randoms)
def test_many_shards_are_cut_out_of_one_box_in_any_order(r: Random) -> None:
    """What a shard leaves over still meets the other shards of the same cut."""
    factors = chain(r)
    left, size = [comb_of(r, factors, full=True)], math.prod(factors)
    below = math.prod(factors[r.randrange(1, len(factors) + 1) :])
    shards = []
    for first, last in ranges(r, size // below):
        for low, high in ranges(r, below):
            digits = [Digit(below, last - first, (below, 0)), Digit(1, high - low, (1, 0))]
            start = first * below + low
            shards.append(Comb(start, tuple(digit for digit in digits if digit.extent > 1), (start, 0)))
    r.shuffle(shards)
    for shard in shards:
        met = [meet(comb, shard) for comb in left]
        assert sum(one.size for pairs, _ in met for one, _ in pairs) == shard.size
        left = [comb for _, rest in met for comb in rest]
    assert not left
