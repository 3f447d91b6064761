"""The compiled loops of the noise give the bits that numpy gives, and nobody needs them."""

from __future__ import annotations

import math
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.noisy import blurred, clients, values
from veilrec.defences import compiled, weights
from veilrec.defences.apm import APM
from veilrec.defences.compiled import Loops, loops
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise import Noisy
from veilrec.defences.sampling import Seeded, mix
from veilrec.params import Params, Rows

ALL, NONE = 0, 1 << 62  # numbers from which on loops are compiled
NOISES = [
    Laplace(),
    Laplace(clip=0.1, scale=1.0),
    Laplace(what="change", clip=0.01),
    APM(components={"first": "item", "middle": "mlp1", "last": "mlp2"}),
    Gaussian(),
]


def left(defence: Noisy, upload: Params, many: int, patch: pytest.MonkeyPatch) -> Params:
    """What leaves the devices, with compiled loops or without."""
    patch.setattr(compiled, "MANY", many)
    return blurred(defence, {**upload}, clients(len(upload["first"])))


def awkward(clients: int, dtype: torch.dtype) -> Params:
    """Values on both sides of the bound, in the middle between two steps, and some that are no numbers."""
    upload = values(clients, dtype)
    strange = [math.nan, math.inf, -math.inf, -0.0, 2.0**-12, -3 * 2.0**-12, 1e-40, 0.5]
    upload["last.bias"][:, : len(strange)] = torch.tensor(strange, dtype=dtype)
    return upload


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("defence", NOISES, ids=str)
def test_compiled_or_not_the_bits_are_the_same(
    defence: Noisy, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    upload = awkward(9, dtype)
    fast, plain = (left(defence, upload, many, monkeypatch) for many in (ALL, NONE))
    for name, value in plain.items():
        assert bytes_of(value) == bytes_of(fast[name]), name


def bytes_of(value: Tensor) -> bytes:
    """The sign of a zero counts; there are several ways to write what is no number, which mean the same."""
    return torch.where(value.isnan(), math.nan, value).numpy().tobytes()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_words_of_weights_side_by_side(widths: list[int], rows: int, seed: int) -> None:
    pytest.importorskip("numba")
    draw = np.random.default_rng(seed)
    key = draw.integers(0, 2**64, (rows, len(widths)), np.uint64)
    row = draw.integers(0, 2**40, rows, np.uint64)
    half = sum((width + 1) // 2 for width in widths)
    found = []
    for compiled_ones in (loops(NONE), None):
        words, spare = (np.empty((rows, half), np.uint64) for _ in range(2))
        source = Seeded(key, row, widths, compiled_ones)
        found.append(source.bits(slice(0, rows), words, spare).copy())
    assert np.array_equal(*found)


def test_planted_a_loop_that_drops_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Magnitudes of 23 bits instead of 31: the check above must see it."""
    pytest.importorskip("numba")
    good = loops(NONE)
    assert good is not None

    def cut(bits: np.ndarray, size: np.ndarray) -> None:
        size[:] = np.abs((bits >> 8).astype(np.float32)) / 2**23

    upload = values(9)
    plain = left(Laplace(), upload, NONE, monkeypatch)
    monkeypatch.setattr(compiled, "_compiled", lambda: good._replace(sizes=cut))
    fast = left(Laplace(), upload, ALL, monkeypatch)
    assert not torch.equal(plain["first"], fast["first"])


def test_the_loops_are_used_where_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    good, calls = loops(NONE), list[str]()
    assert good is not None
    assert loops(compiled.MANY - 1) is None

    def told(name: str) -> object:
        return lambda *arguments: (calls.append(name), getattr(good, name)(*arguments))

    monkeypatch.setattr(compiled, "_compiled", lambda: Loops(*(told(name) for name in Loops._fields)))  # type: ignore[arg-type]
    left(Laplace(), values(9), ALL, monkeypatch)
    assert set(calls) == set(Loops._fields)


def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled._compiled.cache_clear()
    try:
        assert loops(NONE) is None
        sent = left(Laplace(), values(3), ALL, monkeypatch)
    finally:
        compiled._compiled.cache_clear()
    plain = left(Laplace(), values(3), NONE, monkeypatch)
    assert all(torch.equal(sent[name], plain[name]) for name in plain)


def test_a_numba_that_cannot_be_used_is_told_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("numba")
    broken.__spec__ = ModuleSpec("numba", None)
    monkeypatch.setitem(sys.modules, "numba", broken)
    compiled._compiled.cache_clear()
    try:
        with pytest.warns(UserWarning, match="drawn without numba, which cannot be used: .*njit"):
            assert loops(NONE) is None
    finally:
        compiled._compiled.cache_clear()


def test_uncompiled_the_loops_say_what_the_equations_say() -> None:
    """By hand: 0.3, clipped to 0.25, on a lattice of quarters, with three steps of noise; and so on."""
    grid = [np.full(2, x, np.float32) for x in (0.25, 4.0, 0.25)]
    left = np.array([[0.3, -0.1]], np.float32)
    size, bits = np.array([[-1.5, -2.5]], np.float32), np.array([[5, -5]], np.int32)
    compiled._leave(left, size, bits, np.array([-2.0, -1.0], np.float32), *grid)
    assert left.tolist() == [[1.0, -0.5]]  # 1 + 3 steps; -0.4 is no step, and 2.5 goes to the even side
    compiled._leave_some(left, np.array([0, 0]), np.array([0, 1]), np.array([2.0, -1e9]), *grid)
    assert left.tolist() == [[0.75, -0.25 * 2**23]]  # clipped anew; and no farther than float32 is exact
    compiled._sizes(np.array([[1 << 30, -(1 << 31)]], np.int64), size)
    assert size.tolist() == [[0.5, 1.0]]
    words = np.empty((1, 1), np.uint64)
    with np.errstate(over="ignore"):
        compiled._words(np.full((1, 1), 7, np.uint64), np.array([1]), np.zeros(1, np.uint64), words)
    assert words[0, 0] == mix(np.array([7], np.uint64), np.empty(1, np.uint64))[0]


def test_a_block_of_rows_of_a_table_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fresh is overwritten: several blocks, the last of them shorter."""
    pytest.importorskip("numba")
    monkeypatch.setitem(weights.BLOCK, "cpu", 64)
    table = Rows(torch.arange(100, 131), torch.linspace(-1, 1, 31 * 5).reshape(31, 5))
    sent = []
    for many in (ALL, NONE):
        monkeypatch.setattr(compiled, "MANY", many)
        upload = {"item": Rows(table.row[None], table.value[None].clone())}
        sent.append(blurred(Laplace(), upload, clients(1))["item"])
    assert torch.equal(sent[0].value, sent[1].value)  # type: ignore[attr-defined]
