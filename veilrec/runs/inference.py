"""Inference: what each attack finds out from the transcript of a run, beside always guessing the majority."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.attack import Attack, Threat
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, id_hashes
from veilrec.keys import Keys
from veilrec.transcript import Transcript

__all__ = ["inference"]


def inference(
    attacks: Mapping[str, Attack], threat: Threat, path: Path, data: Interactions, seed: int
) -> dict[str, Any]:
    """How often each attack guesses the attribute of users whose label it was not given.

    Raises:
        BadInput: Where nothing was recorded, or an attack's answer has the wrong shape.
    """
    label = data.attributes[threat.attribute]
    classes = max(len(data.classes.get(threat.attribute, ())), int(label.max()) + 1)
    known = threat.draw(label, id_hashes(data.user_ids), Keys.seed(seed).fold("attack"))
    target = (label >= 0) & (known < 0)
    seen, truth = Transcript.open(path), label[target]
    floor = float((truth == known[known >= 0].mode().values).double().mean())
    found = {}
    for name, attack in attacks.items():
        scores = _checked(name, attack.infer(seen, known, classes), (len(label), classes))
        right = float((scores[target].argmax(1) == truth).double().mean())
        found[name] = {
            "attribute": threat.attribute,
            "accuracy": right,
            "majority": floor,
            "known": int((known >= 0).sum()),
            "targets": len(truth),
            "rounds": seen.rounds,
        }
    return found


def _checked(name: str, scores: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(scores.shape) != shape or not bool(torch.isfinite(scores).all()):
        what = f"{name} answers with {list(scores.shape)}, or with values that are not finite"
        raise BadInput("attack", what, f"answer with finite scores of shape {list(shape)}")
    return scores
