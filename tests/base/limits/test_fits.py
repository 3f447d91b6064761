"""What cannot fit is refused, and the setting to lower is named with what to lower it to."""

from __future__ import annotations

import pytest

from veilrec.base.limits import machine
from veilrec.base.limits.fits import SURE, Need, refuse
from veilrec.base.limits.machine import Room, fenced
from veilrec.errors import BadInput, no_memory

ROOM = Room(1_000_000_000, "the memory that is free")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (
            [Need("held", 10**8), Need("devices at work", 2 * 10**9, "plan.chunk", 200)],
            "plan.chunk: training needs about 2,100 MB of memory, and there are 1,000 (the memory that is "
            "free), most of it for devices at work; lower it from 200 to 90",
        ),
        (
            [
                Need("shelves", 6 * 10**9, "data.items", 1_000_000),
                Need("films", 10**9, "data.items", 1_000_000),
            ],
            "lower it from 1,000,000 to 140,000",
        ),
        ([Need("held", 10**8), Need("what devices keep", 10**10, "plan.keeps", 1)], 'set it to "disk"'),
        ([Need("held", 2 * 10**9)], "memory: training needs about 2,000 MB of memory"),
        (
            [Need("held", 2 * 10**9), Need("candidates", 10**8, "evaluation.candidates", 9)],
            "evaluation.candidates: training needs about 2,100 MB",
        ),
    ],
)
def test_what_cannot_fit_is_refused(parts: list[Need], told: str) -> None:
    with pytest.raises(BadInput) as caught:
        refuse("training", parts, ROOM)
    assert told in str(caught.value)


def test_what_was_lowered_as_told_passes() -> None:
    refuse("training", [Need("held", 10**8), Need("work", 2 * 10**9 * 90 // 200, "plan.chunk", 90)], ROOM)


def test_an_estimate_may_be_too_high_but_not_what_is_there() -> None:
    with pytest.raises(BadInput):
        refuse("training", [Need("held now", int(1.1 * ROOM.bytes), certain=True)], ROOM)
    refuse("training", [Need("work", int(ROOM.bytes / SURE))], ROOM)
    with pytest.raises(BadInput):
        refuse("training", [Need("work", int(ROOM.bytes / SURE) + 10)], ROOM)


@pytest.mark.skipif(not machine._text(machine.Path("/proc/self/status")), reason="reads what Linux says")
def test_behind_a_fence_what_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(machine, "room", lambda: Room(64 << 20, "the memory that is free"))
    with fenced(), pytest.raises(RuntimeError) as caught:
        torch.zeros(1 << 28)
    assert no_memory(caught.value)
    assert len(torch.zeros(1 << 25)) == 1 << 25, "and the fence is gone"
