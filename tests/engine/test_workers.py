"""Workers hand results back in order, hold few of them, and leave the process as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from veilrec.engine.workers import workers
from veilrec.models.fedmf import FedMF


@pytest.mark.parametrize("n", [1, 2, 4])
def test_results_come_in_order(n: int) -> None:
    with workers(n) as pool:
        assert list(pool.map(lambda x: x * x, range(50))) == [x * x for x in range(50)]


@pytest.mark.parametrize("n", [1, 3])
def test_only_a_few_tasks_are_taken_at_a_time(n: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for k in range(100):
            taken += 1
            yield k

    with workers(n) as pool:
        for done, result in enumerate(pool.map(lambda x: x, tasks())):
            assert result == done
            assert taken <= done + n + 2


@pytest.mark.parametrize("n", [1, 2])
def test_the_first_failure_comes_out(n: int) -> None:
    def fail(x: int) -> int:
        if x == 7:
            raise KeyError("planted")
        return x

    seen: list[int] = []
    with workers(n) as pool, pytest.raises(KeyError, match="planted"):
        seen.extend(pool.map(fail, range(100)))
    assert len(seen) <= 7


@pytest.mark.parametrize("n", [1, 2])
def test_torch_threads_are_one_inside_and_restored_outside(n: int) -> None:
    before = torch.get_num_threads()
    with workers(n) as pool:
        assert set(pool.map(lambda _: torch.get_num_threads(), range(8))) == {1}
    assert torch.get_num_threads() == before


def test_each_thread_has_a_module_of_its_own() -> None:
    model, barrier = FedMF(5), threading.Barrier(2)

    def copies(_: int) -> tuple[int, int, int]:
        barrier.wait(timeout=10)
        return threading.get_ident(), id(pool.own(model)), id(pool.own(model))

    with workers(2) as pool:
        found = list(pool.map(copies, range(2)))
        assert all(first == second != id(model) for _, first, second in found)
        assert len({first for _, first, _ in found}) == 2
    with workers(1) as alone:
        assert alone.own(model) is model
