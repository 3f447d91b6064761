"""What is computed about PARD's vectors outside of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.pard_vector import (
    Found,
    add,
    auc_of,
    exchanged,
    exchanges,
    of_another,
    table,
    told,
    way,
    ways,
)
from tests.results import result
from veilrec.base.files import digest
from veilrec.runs.integrity.manifest import Manifest


def test_a_vector_that_stays_goes_no_way() -> None:
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    found = way(vectors, vectors)
    assert found.moved == 0
    assert found.cosine == pytest.approx(1)
    assert found.start == found.end == pytest.approx(float(vectors.norm(dim=1).mean()))


def test_a_vector_that_turns_round_moves_by_twice_its_length() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert way(vectors, -vectors) == pytest.approx((3.0, 3.0, 2.0, -1.0))


def test_vectors_of_others_have_no_way() -> None:
    with pytest.raises(ValueError, match="not vectors of the same users"):
        way(torch.ones(2, 3), torch.ones(3, 3))


@pytest.mark.parametrize("seed", range(5))
def test_everybody_gets_the_vector_of_somebody_else_and_none_is_lost(seed: int) -> None:
    vectors = torch.arange(7.0)[:, None]
    given = of_another(vectors, seed)
    assert (given != vectors).all()
    assert sorted(given.flatten().tolist()) == vectors.flatten().tolist()


def test_one_vector_is_exchanged_at_a_time() -> None:
    state = {
        "client": torch.tensor([2, 0, 1]),
        "user": torch.arange(1.0, 4)[:, None, None],
        "user_re": torch.ones(3, 1, 1),
    }
    found = {}
    for what, change in exchanges(["user", "user_re"], torch.tensor([[10.0], [11.0], [12.0]])).items():
        found[what] = dict(state)
        change(found[what])
    assert found["uploaded vector as it began"]["user"].flatten().tolist() == [12, 10, 11]
    assert found["uploaded vector zero"]["user"].abs().sum() == 0
    assert found["kept vector zero"]["user_re"].abs().sum() == 0
    assert found["kept vector zero"]["user"] is state["user"]
    assert len(found) == 5


def test_a_copy_with_another_vector_vouches_for_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_file({"user": torch.ones(2)}, run / "users.safetensors", metadata={"a": "b"})
    result().save(run, {"users.safetensors": digest(run / "users.safetensors")})
    with exchanged(run, lambda tensors: tensors.update(user=torch.zeros(2))) as copy:
        assert Manifest.load(copy).faults() == []
        with safe_open(copy / "users.safetensors", "pt") as file:
            assert file.get_tensor("user").tolist() == [0, 0]
            assert file.metadata() == {"a": "b"}
    assert list(tmp_path.iterdir()) == [run]


def test_both_halves_are_found_in_the_transcript(tmp_path: Path) -> None:
    for name, turn in (("start", 1.0), ("end", -1.0)):
        (tmp_path / name).mkdir()
        tensors = {
            "r000000/cohort": torch.tensor([1, 0]),
            "r000000/user": torch.tensor([[[1.0]], [[2.0]]]),
            "r000000/posts/owner": torch.tensor([1]),
            "r000000/posts/pard.user_re": torch.tensor([[turn]]),
            "r000009/user": torch.zeros(1, 1, 1),
        }
        save_file(tensors, tmp_path / name / "transcript.safetensors")
    found = ways(tmp_path / "start", tmp_path / "end")
    assert found["user"] == pytest.approx((1.5, 1.5, 0.0, 1.0))
    assert found["user_re"] == pytest.approx((1.0, 1.0, 2.0, -1.0))


def test_the_only_attacker_is_read() -> None:
    scores = {"attackers": [{"scores": {"auc": {"value": 0.6, "low": 0.5, "high": 0.7}}}]}
    assert auc_of({"run": {"custom": {"attributes": {"gender": scores}}}}, "gender") == 0.6


def test_seeds_are_told_by_mean_and_range() -> None:
    found: Found = {}
    add(found, "a", [0.25])
    assert told(found["a"][0], 2) == "0.25"
    add(found, "a", [0.75])
    assert told([0.5, 0.5], 1) == "0.5"
    found["b"] = [[]]
    assert table(["what", "AUC"], found, 2) == (
        "| what | AUC |\n| --- | ---: |\n| a | 0.50 (0.25 to 0.75) |\n| b | – |"
    )
