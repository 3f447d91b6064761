"""FedNews: the same Laplace noise on all that leaves, the rival that APM is compared with.

Paper: Qi et al., "Privacy-Preserving News Recommendation Model Learning", Findings of EMNLP 2020, as used by
Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", 2023 (§5): only its noise, on their own recommenders, where they also call it LDP.
Acts at: on_upload.
Eq. (12) of the latter with one λ for all parts → `noise`. Neither gives the λ that was compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veilrec.defences.laplace import Laplace

__all__ = ["FedNews"]


@dataclass(frozen=True)
class FedNews(Laplace):
    """Clip every weight to ±`clip`, then add the same Laplace noise to all of them.

    It is `laplace` with the settings of APM's comparison: whole tables go up. Qi et al. clip gradients.

    >>> from veilrec.models.fedmf import FedMF
    >>> from veilrec.protocols.fedavg import FedAvg
    >>> [noise] = FedNews(clip=0.5, scale=0.025).declares(FedMF(3), FedAvg())
    >>> noise.name, noise.rows, noise.epsilon
    ('item', 'all', 40.0)

    Attributes:
        clip: Bound δ on a value.
        scale: λ of the noise, 0 for none; 0.025 where neither it nor `epsilon` is given, in the middle of
            what APM tries (0.017 to 0.033).
        epsilon: Instead of `scale`, the ε of each single coordinate of each upload: λ = 2·clip/ε.
        rows: Noise on ``all`` rows of item tables, so that whole tables go up, or on the ``touched`` ones.
        what: The values that are clipped: the ``weights`` themselves; their ``change`` against the weights
            received; or ``gradients``, where the protocol sends them.
        parts: The parts that are blurred; empty for all that leave the device.
    """

    rows: Literal["touched", "all"] = "all"
