"""What ranks say to each other lies where they work when it has been read, whatever it is."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from veilrec.base.params import Rows
from veilrec.cli import work
from veilrec.engine.ranks.homes import gpu_of
from veilrec.engine.ranks.messages import moved
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange, Fold, Letter, Posts, Uploads

ELSEWHERE = torch.device("meta")  # every machine has it
ONE = torch.ones(2)
LETTER = Letter({"item": ONE}, {"mine": ONE}, {"label": ONE}, 3)
UPLOADS = Uploads(
    ONE.long(),
    {"item": Rows(ONE.long(), ONE), "head": ONE},
    Posts(ONE.long(), {"label": ONE}),
    sums={"a": ONE},
)
TOLD = {
    "letter": LETTER,
    "exchange": Exchange(1, LETTER, UPLOADS, {"item": Spec((2,), table=4)}),
    "fold": Fold({"item": ONE}, Posts(ONE.long(), {}), {"clients": 2.0}, {"ledger": {"units": ONE}}, (2, 3)),
}


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [found for entry in value.values() for found in tensors_in(entry)]
    if isinstance(value, tuple):
        return [found for entry in value for found in tensors_in(entry)]
    names = [one.name for one in fields(value)] if hasattr(value, "__dataclass_fields__") else []
    return [found for name in names for found in tensors_in(getattr(value, name))]


@pytest.mark.parametrize("name", TOLD)
def test_all_tensors_are_moved_and_all_else_stays(name: str) -> None:
    before, after = TOLD[name], moved(TOLD[name], ELSEWHERE)
    assert type(before) is type(after)
    assert len(tensors_in(before)) == len(tensors_in(after)) >= 3
    assert all(tensor.device == ELSEWHERE for tensor in tensors_in(after))
    again = moved(before, torch.device("cpu"))
    assert repr(again) == repr(before)


@pytest.mark.parametrize(
    ("device", "place", "count", "expected"),
    [
        ("cuda", 0, 1, "cuda:0"),
        ("cuda", 3, 2, "cuda:1"),
        ("cuda", 1, 0, "cuda"),  # refused later, as in one process
        ("cuda:1", 0, 2, "cuda:1"),
        ("cpu", 1, 2, "cpu"),
    ],
)
def test_ranks_share_the_gpus_of_their_machine(device: str, place: int, count: int, expected: str) -> None:
    assert gpu_of(device, place, count) == expected


def test_a_job_without_torchrun_works_where_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(os.environ, "TORCHELASTIC_RUN_ID", raising=False)
    with work.sharing(work.RunOptions(device="cuda")) as job:
        assert job.device == "cuda"
