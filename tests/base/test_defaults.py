"""What a caller has set for itself in torch changes no bit, and is found again as it was."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.worlds import checkerboard
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.defaults import own_defaults
from veilrec.base.files import digest
from veilrec.base.plan import Plan
from veilrec.defences.laplace import Laplace
from veilrec.experiment import Experiment
from veilrec.lab.threat import Threat
from veilrec.models.fedncf import FedNCF
from veilrec.recipe.catalogue import load_plugin
from veilrec.result import Result

PLUGIN = """
import torch
from veilrec.defence import Defence
__all__ = ["Nothing"]
torch.set_default_dtype(torch.float64)
class Nothing(Defence):
    "Does nothing."
"""
FILES = ("model.safetensors", "users.safetensors", "metrics.jsonl", "per_user.csv", "transcript.safetensors")


@pytest.fixture
def doubled() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def run(folder: Path) -> Result:
    return Experiment(
        checkerboard(),
        partial(FedNCF, dim=4, head=(4,), user="exposed"),
        defence=Laplace(scale=0.01),
        plan=Plan(rounds=2, evaluate_every=1, optimiser="adam"),
        attacks={"a": AttributeInference(classifiers=("mlp", "logistic"))},
        threat=Threat(known=0.5, repeats=1, membership=False),
    ).run(folder)


def test_a_default_dtype_changes_no_bit_of_a_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    plain = run(tmp_path / "plain")
    request.getfixturevalue("doubled")
    result = run(tmp_path / "doubled")
    assert torch.get_default_dtype() == torch.float64
    assert {n: digest(tmp_path / "doubled" / n) for n in FILES} == {
        n: digest(tmp_path / "plain" / n) for n in FILES
    }
    assert without_seconds(result.privacy) == without_seconds(plain.privacy)


def without_seconds(found: object) -> object:
    if isinstance(found, dict):
        return {name: without_seconds(value) for name, value in found.items() if name != "seconds"}
    return [without_seconds(one) for one in found] if isinstance(found, list) else found


def test_a_plugin_sets_nothing_for_others(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    load_plugin(tmp_path / "plugin.py")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.usefixtures("doubled")
def test_they_are_put_back_after_an_error() -> None:
    torch.set_default_device("meta")
    try:
        with pytest.raises(ValueError, match="float32 cpu"), own_defaults():
            raise ValueError(f"{torch.get_default_dtype()} {torch.zeros(1).device}")
        assert torch.zeros(1).device.type == "meta"
        assert torch.zeros(1).dtype == torch.float64
    finally:
        torch.set_default_device(None)
