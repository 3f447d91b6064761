"""FedNews: the same Laplace noise on all that leaves, the rival that APM is compared with.

Paper: Qi et al., "Privacy-Preserving News Recommendation Model Learning", Findings of EMNLP 2020, as used by
Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", 2023 (§5): only its noise, on their own recommenders, where they also call it LDP.
Acts at: on_upload.
Eq. (12) of the latter with one λ for all parts → `noise`. Neither gives the λ that was compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from veilrec.defences.noise import Noise, Noisy, check_amounts
from veilrec.mechanism import exact

__all__ = ["FedNews"]


@dataclass(frozen=True)
class FedNews(Noisy):
    """Clip every weight to ±`clip`, then add the same Laplace noise to all of them.

    It is `laplace` with the settings of APM's comparison: whole tables go up.

    Attributes:
        clip: Bound δ on a weight, as APM has it; Qi et al. clip gradients.
        scale: λ of the noise: in the middle of what APM tries (0.017 to 0.033); 0 for none.
        rows: Noise on ``all`` rows of item tables, so that whole tables go up, or on the ``touched`` ones.
        what: What is clipped: the ``weights`` themselves; their ``change`` against what was received; or
            ``gradients``, where the protocol sends them.
        parts: The parts that are blurred; empty for all that leave the device.
    """

    clip: float = 0.5
    scale: float = 0.025
    rows: Literal["touched", "all"] = "all"
    what: Literal["weights", "change", "gradients"] = "weights"
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_amounts(self.clip, self.scale, None)

    @cached_property
    def noise(self) -> Noise:
        """Clipping and noise, in exact numbers."""
        return Noise(
            "laplace",
            exact(self.scale),
            exact(self.clip),
            rows=self.rows,
            what=self.what,
            parts=tuple(self.parts),
        )
