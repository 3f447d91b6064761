"""Laplace: clip every value of an upload, then blur it with Laplace noise.

Paper: Qi et al., "Privacy-Preserving News Recommendation Model Learning", Findings of EMNLP 2020; with the
clipping of Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against
Attribute Inference Attacks", 2023 (§4, Eq. 12), who compare with it as FedNews and LDP.
Acts at: on_upload.
Eq. (12) with one λ for all parts → `on_upload`; λ = 2·clip/ε → `noise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from veilrec.base.limits.bounds import Amount, Positive
from veilrec.defences.noise.noisy import Clip, Noise, Noisy, one_of
from veilrec.defences.noise.sampling import lattice
from veilrec.privacy.mechanism import exact

__all__ = ["Laplace"]

SCALE = 0.025  # in the middle of what APM tries (0.017 to 0.033)


@dataclass(frozen=True)
class Laplace(Noisy):
    """Clip every value to ±`clip`, then add Laplace noise.

    The guarantee covers the values alone. A number of examples that is sent leaves as it is, and so do the
    numbers of the rows under ``rows = "touched"``, which reveal the items that a user touched.

    >>> import torch
    >>> from veilrec.base.keys import Keys
    >>> from veilrec.clients import Batch
    >>> from veilrec.model import Device
    >>> nought = torch.tensor(0)
    >>> device = Device(Batch.by_hand(3), sent={}, public={}, keys=Keys.seed(0), round=nought, step=nought)
    >>> upload = {"user": torch.tensor([3.0, -0.1])}
    >>> Laplace(clip=0.5, scale=0.0).on_upload(upload, device)  # clipped alone
    {'user': tensor([ 0.5000, -0.1000])}
    >>> Laplace(clip=0.5, scale=0.1).on_upload(upload, device)["user"].round(decimals=2)
    tensor([ 0.4900, -0.0600])

    Of that noise, the ε of each value that a device uploads of FedMF (its user's vector stays at home):

    >>> from veilrec.models.fedmf import FedMF
    >>> from veilrec.protocols.fedavg import FedAvg
    >>> [(noise.name, noise.epsilon) for noise in Laplace(clip=0.5, scale=0.1).declares(FedMF(3), FedAvg())]
    [('item', 10.0)]

    Attributes:
        clip: Bound δ on a value.
        scale: λ of the noise, 0 for none; 0.025 where neither it nor `epsilon` is given.
        epsilon: Instead of `scale`, the ε of each single coordinate of each upload: λ = 2·clip/ε.
        rows: Noise on the ``touched`` rows of item tables, or on ``all``: then whole tables go up, of which
            the untouched rows are as they were received, or zero where gradients are sent.
        what: The values that are clipped: the ``weights`` themselves, as APM does; their ``change`` against
            the weights received, which is small, so that a small `clip` costs little; or ``gradients``, where
            the protocol sends them. A user's own vector is received from nobody and always clipped itself.
        parts: The parts that are blurred; empty for all that leave the device.
    """

    clip: Clip = 0.5
    scale: Amount | None = None
    epsilon: Positive | None = None
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
            scale = 2 * clip / exact(self.epsilon)
        else:
            scale = exact(SCALE if self.scale is None else self.scale)
        return Noise("laplace", scale, clip, "value", self.rows, self.what, tuple(self.parts))
