"""The compiled loops of the noise give the bits that numpy gives, and nobody needs them."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from tests.noisy import blurred, clients, device, values
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows
from veilrec.defence import secretly
from veilrec.defences.apm import APM
from veilrec.defences.fednews import FedNews
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise import compiled, weights
from veilrec.defences.noise.compiled import Loops, loops
from veilrec.defences.noise.noisy import Noisy
from veilrec.defences.noise.sampling import Seeded, mix

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
    ties = [sign * k * 2.0**-power for sign in (1, -1) for k in (1, 3) for power in range(13, 19)]
    strange = [math.nan, math.inf, -math.inf, -0.0, 1e-40, 0.5, *ties]
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
    for compiled_ones in (loops(compiled.MANY), None):
        words, spare = (np.empty((rows, half), np.uint64) for _ in range(2))
        source = Seeded(key, row, widths, compiled_ones)
        found.append(source.bits(slice(0, rows), words, spare).copy())
    assert np.array_equal(*found)


def test_planted_a_loop_that_drops_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Magnitudes of 23 bits instead of 31: the check above must see it."""
    pytest.importorskip("numba")
    good = loops(compiled.MANY)
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
    good, calls = loops(compiled.MANY), list[str]()
    assert good is not None
    assert loops(compiled.MANY - 1) is None

    def told(name: str) -> object:
        return lambda *arguments: (calls.append(name), getattr(good, name)(*arguments))

    monkeypatch.setattr(compiled, "_compiled", lambda: Loops(*(told(name) for name in Loops._fields)))  # type: ignore[arg-type]
    left(Laplace(), values(9), ALL, monkeypatch)
    left(FedNews(), {"first": values(9)["first"][:, 0]}, ALL, monkeypatch)
    assert set(calls) == set(Loops._fields)


def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled._compiled.cache_clear()
    try:
        assert loops(compiled.MANY) is None
        sent = left(Laplace(), values(3), ALL, monkeypatch)
    finally:
        compiled._compiled.cache_clear()
    plain = left(Laplace(), values(3), NONE, monkeypatch)
    assert all(torch.equal(sent[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    "error", [ImportError("njit"), OSError("njit: no library")], ids=["numpy", "library"]
)
def test_a_numba_that_cannot_be_used_is_told_and_done_without(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise error

    broken = Broken("numba")
    broken.__spec__ = ModuleSpec("numba", None)
    monkeypatch.setitem(sys.modules, "numba", broken)
    compiled._compiled.cache_clear()
    try:
        with pytest.warns(UserWarning, match="drawn without numba, which cannot be used: .*njit"):
            assert loops(compiled.MANY) is None
    finally:
        compiled._compiled.cache_clear()


def test_where_compiling_is_switched_off_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled the loops would take hundreds of times as long."""
    monkeypatch.setattr(pytest.importorskip("numba").config, "DISABLE_JIT", 1)
    compiled._compiled.cache_clear()
    try:
        assert loops(compiled.MANY) is None
    finally:
        compiled._compiled.cache_clear()


def test_two_threads_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compiled._compiled.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(loops, [compiled.MANY] * 4))
    assert found[0] is not None
    assert all(one is found[0] for one in found)


def test_uncompiled_the_loops_say_what_the_equations_say() -> None:
    """By hand: 0.3, clipped to 0.25, on a lattice of quarters, with three steps of noise; and so on."""
    grid = [np.full(2, x, np.float32) for x in (0.25, 4.0, 0.25)]
    left = np.array([[0.3, -0.1]], np.float32)
    size, bits = np.array([[-1.5, -2.5]], np.float32), np.array([[5, -5]], np.int32)
    compiled._leave(left, left, size, bits, np.array([-2.0, -1.0], np.float32), *grid)
    assert left.tolist() == [[1.0, -0.5]]  # 1 + 3 steps; -0.4 is no step, and 2.5 goes to the even side
    compiled._leave_some(left, np.array([0, 0]), np.array([0, 1]), np.array([2.0, -1e9]), *grid)
    assert left.tolist() == [[0.75, -0.25 * 2**23]]  # clipped anew; and no farther than float32 is exact
    compiled._sizes(np.array([[1 << 30, -(1 << 31)]], np.int64), size)
    assert size.tolist() == [[0.5, 1.0]]
    words = np.empty((1, 1), np.uint64)
    with np.errstate(over="ignore"):
        compiled._words(np.full((1, 1), 7, np.uint64), np.array([1]), np.zeros(1, np.uint64), words)
    assert words[0, 0] == mix(np.array([7], np.uint64), np.empty(1, np.uint64))[0]


@pytest.mark.parametrize("width", [1, 5])
def test_whole_tables_in_place(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are fresh and overwritten, in several blocks; nothing else is."""
    pytest.importorskip("numba")
    monkeypatch.setitem(weights.BLOCK, "cpu", 64)
    table = torch.linspace(-1, 1, 131 * width).reshape(131, width)
    upload = {"item": Rows(torch.tensor([3, 7]), torch.ones(2, width))}
    sent = []
    for many in (ALL, NONE):
        monkeypatch.setattr(compiled, "MANY", many)
        left = FedNews().on_upload(upload, device(Keys.seed(2), {"item": table}))["item"]
        assert isinstance(left, Rows)
        sent.append(left.value)
    assert bytes_of(sent[0]) == bytes_of(sent[1])
    assert len(sent[0]) == 131
    assert torch.equal(table, torch.linspace(-1, 1, 131 * width).reshape(131, width))
    assert bool((upload["item"].value == 1).all())


@pytest.mark.parametrize("many", [ALL, NONE], ids=["compiled", "plain"])
def test_one_table_for_several_clients_is_noised_for_each(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their keys differ: what they share must not be noised over and over."""
    monkeypatch.setattr(compiled, "MANY", many)
    upload, sent = {"item": Rows(torch.tensor([0]), torch.rand(1, 4))}, {"item": torch.zeros(1, 4)}

    def one(key: Tensor) -> Message:
        return FedNews().on_upload(upload, device(Keys(key), sent))

    together = vmap(one)(clients(3).value)["item"].value
    alone = [one(key)["item"] for key in clients(3).value]
    for k, value in enumerate(alone):
        assert isinstance(value, Rows)
        assert torch.equal(together[k], value.value)


def test_a_real_device_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It draws once, from the operating system, and would wait for the compiler longer than for that."""
    calls = list[int]()
    monkeypatch.setattr(compiled, "_compiled", lambda: calls.append(1))
    left(secretly(Laplace()), values(2), ALL, monkeypatch)  # type: ignore[arg-type]
    assert not calls
    left(Laplace(), values(2), ALL, monkeypatch)
    assert calls  # a simulation asks for them


def test_values_that_do_not_lie_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    table = torch.linspace(-1, 1, 2 * 30 * 9).reshape(2, 9, 30).mT[:, ::2]
    assert not table.is_contiguous()
    sent = []
    for many in (ALL, NONE):
        monkeypatch.setattr(compiled, "MANY", many)
        rows = Rows(torch.arange(15).expand(2, 15), table)
        sent.append(blurred(Laplace(), {"item": rows}, clients(2))["item"])
    assert torch.equal(sent[0].value, sent[1].value)  # type: ignore[attr-defined]
