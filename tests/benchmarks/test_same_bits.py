"""`benchmarks.same_bits` sees every bit that differs, and nothing where none does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks import bit_cases, same_bits
from benchmarks.same_bits import differences, leaves, read, row

ITEM = torch.arange(6, dtype=torch.float32).reshape(3, 2)
RESULT: dict[str, Any] = {
    "utility": {"test": {"hr@10": 0.25}},
    "traffic": {"up": {"total": 12}},
    "ledger": {"mechanisms": [], "notes": ["none"]},
    "discloses": [{"name": "item", "shape": [2]}],
    "privacy": {"apm": {"attackers": [{"p": 0.5, "seconds": 1.0}]}},
}


def folder(path: Path, item: Tensor = ITEM, **changed: Any) -> Path:
    """A run directory with as much in it as is compared."""
    path.mkdir()
    save_file({"item": item.contiguous()}, path / "model.safetensors")
    save_file({"client": torch.arange(2)}, path / "users.safetensors")
    (path / "metrics.jsonl").write_text('{"round": 1, "loss": 0.5}\n', encoding="utf-8")
    (path / "per_user.csv").write_text("user,hr@10\nu1,0.25\n", encoding="utf-8")
    (path / "result.json").write_text(json.dumps({**RESULT, **changed, "timing": {}}), encoding="utf-8")
    return path


def test_equal_runs_do_not_differ(tmp_path: Path) -> None:
    apm = {"apm": {"attackers": [{"p": 0.5, "seconds": 9.0}]}}  # only slower
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other", privacy=apm)
    assert differences(read(one), read(other)) == {}
    assert row("case", {})[-1] == ""


@pytest.mark.parametrize(
    "item",
    [ITEM.nextafter(ITEM + 1), ITEM.double(), ITEM.reshape(2, 3), ITEM.flip(0)],
    ids=["bytes", "dtype", "shape", "order"],
)
def test_another_tensor_differs(tmp_path: Path, item: Tensor) -> None:
    found = differences(read(folder(tmp_path / "one")), read(folder(tmp_path / "other", item)))
    assert list(found) == ["model"]
    assert found["model"][0].startswith("item: F32 [3, 2] ")
    assert "≠" in row("case", found)


@pytest.mark.parametrize(
    ("group", "value", "said"),
    [
        ("utility", {"test": {"hr@10": 0.25000000000000006}}, "test.hr@10: 0.25 → 0.25000000000000006"),
        ("traffic", {"up": {"total": 13}}, "up.total: 12 → 13"),
        ("ledger", {"mechanisms": [], "notes": []}, 'notes.0: "none" → nothing'),
        ("discloses", [{"name": "item", "shape": [3]}], "0.shape.0: 2 → 3"),
        ("privacy", {}, "apm.attackers.0.p: 0.5 → nothing"),
    ],
)
def test_another_number_differs(tmp_path: Path, group: str, value: Any, said: str) -> None:
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other", **{group: value})
    found = differences(read(one), read(other))
    assert list(found) == [group]
    assert found[group][0] == f"{group}.{said}"


def test_rows_and_files_count_too(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other")
    (other / "metrics.jsonl").write_text('{"round": 1, "loss": 0.5}\n{"round": 2}\n', encoding="utf-8")
    (other / "per_user.csv").write_text("user,hr@10\nu1,0.5\n", encoding="utf-8")
    save_file({"r000001/item": ITEM}, other / "transcript.safetensors")
    assert set(differences(read(one), read(other))) == {"metrics", "people", "transcript"}


def test_a_key_that_moved_is_compared_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_bits, "MOVED", {"traffic.sent": "traffic.up"})
    old = {"traffic": dict(leaves({"traffic": {"up": {"total": 12}}}))}
    new = {"traffic": dict(leaves({"traffic": {"sent": {"total": 12}}}))}
    assert differences(old, new) == {}
    assert differences(new, old)


def test_cases_and_their_other_spellings_go_together() -> None:
    assert bit_cases.RENAMED.keys() | bit_cases.RESUMED <= bit_cases.CASES.keys()
    assert all(text != bit_cases.CASES[name] for name, text in bit_cases.RENAMED.items())
