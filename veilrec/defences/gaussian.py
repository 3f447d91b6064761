"""Gaussian: clip an upload by value or as a whole, then blur it with Gaussian noise.

Paper: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014 (Appendix A), with the
norm clipping of Abadi et al., "Deep Learning with Differential Privacy", CCS 2016; by value it is the rival
FedRec-GN of Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against
Attribute Inference Attacks", 2023 (§5).
Acts at: on_upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from veilrec.base.limits.bounds import Amount, Positive
from veilrec.defences.noise.noisy import Clip, Noise, Noisy, one_of
from veilrec.defences.noise.sampling import lattice
from veilrec.privacy.mechanism import exact, gaussian_ratio

__all__ = ["Gaussian"]

SCALE = 0.035  # about √2 times the 0.025 of `laplace`: the same variance. The paper does not give its σ.


@dataclass(frozen=True)
class Gaussian(Noisy):
    """Clip every value to ±`clip`, or the whole upload to that norm, then add Gaussian noise.

    The guarantee covers the values alone. A number of examples that is sent leaves as it is, and so do the
    numbers of the rows under ``rows = "touched"``, which reveal the items that a user touched.

    An upload of norm 5 is scaled to norm 1, and the ε of its noise is declared:

    >>> import torch
    >>> from veilrec.base.keys import Keys
    >>> from veilrec.clients import Batch
    >>> from veilrec.model import Device
    >>> nought = torch.tensor(0)
    >>> device = Device(Batch.by_hand(3), sent={}, public={}, keys=Keys.seed(0), round=nought, step=nought)
    >>> Gaussian(clip=1.0, clip_by="norm", scale=0.0).on_upload({"user": torch.tensor([3.0, 4.0])}, device)
    {'user': tensor([0.6000, 0.8000])}
    >>> from veilrec.models.fedmf import FedMF
    >>> from veilrec.protocols.fedavg import FedAvg
    >>> [noise] = Gaussian(clip=0.5, epsilon=8.0).declares(FedMF(3), FedAvg())
    >>> noise.name, round(noise.epsilon, 6)
    ('item', 8.0)

    Attributes:
        clip: Bound on a value, or on the Euclidean norm of all values that are blurred.
        scale: σ of the noise, 0 for none; 0.035 where neither it nor `epsilon` is given.
        epsilon: Instead of `scale`, the ε at δ = 1e-5 of each single coordinate of each upload; of a whole
            upload where its norm is clipped.
        clip_by: Whether each ``value`` is clipped or the ``norm`` of them all.
        rows: Noise on the ``touched`` rows of item tables, or on ``all``: then whole tables go up, of which
            the untouched rows are as they were received, or zero where gradients are sent.
        what: The values that are clipped: the ``weights`` themselves; their ``change`` against the weights
            received, which suits a norm; or ``gradients``, where the protocol sends them. A user's own vector
            is received from nobody and always clipped itself.
        parts: The parts that are blurred; empty for all that leave the device.
    """

    clip: Clip = 0.5
    scale: Amount | None = None
    epsilon: Positive | None = None
    clip_by: Literal["value", "norm"] = "value"
    rows: Literal["touched", "all"] = "touched"
    what: Literal["weights", "change", "gradients"] = "weights"
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.scale, self.epsilon)
        if scale := self.noise.scale_of(""):
            lattice(scale, self.noise.clip, "defence.scale" if self.epsilon is None else "defence.epsilon")

    @cached_property
    def noise(self) -> Noise:
        """Clipping and noise, in exact numbers."""
        clip = exact(self.clip)
        if self.epsilon is not None:
            scale = 2 * clip / exact(gaussian_ratio(self.epsilon))
        else:
            scale = exact(SCALE if self.scale is None else self.scale)
        return Noise("gaussian", scale, clip, self.clip_by, self.rows, self.what, tuple(self.parts))
