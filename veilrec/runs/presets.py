"""Protocols of attacks by name: our own, and each paper's, as its authors ran it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilrec.attacks.attribute import AttributeInference
from veilrec.errors import BadInput, nearest
from veilrec.runs.lab import Audit
from veilrec.threat import Threat

__all__ = ["OWN", "PRESETS", "preset"]

OWN = "veilrec"
WORST = ("logistic", "mlp", "boosting", "forest", "knn", "svc")
# On wide readings, where boosting costs most:
QUICK = ("logistic", "mlp", "forest", "knn")
BARE = Threat(stratified=False, by_part=False, membership=False)

PRESETS = {
    # Nothing granted, the worst of six families on three readings, chosen on known users.
    OWN: Audit(
        OWN,
        Threat(),
        {
            "updates": AttributeInference("updates", classifiers=QUICK),
            "profile": AttributeInference("profile", classifiers=QUICK),
            "parameters": AttributeInference("parameters", classifiers=WORST),
            "embeddings": AttributeInference("embeddings", classifiers=WORST),  # where vectors are uploaded
        },
        picks=True,
    ),
    # Eq. 7: user vector ⊕ mean vector of the granted items; 20 % known, one split, best test epoch of 150.
    "pard": Audit(
        "pard",
        replace(BARE, selection="oracle", grants=("interactions", "user_vectors")),
        {"parameters": AttributeInference("parameters", classifiers=("mlp-pard",))},
    ),
    # §3.3: the whole update ΔΘ/μ, and each component; ζ = 0.1 of the users known.
    "apm": Audit(
        "apm",
        replace(BARE, known=0.1, by_part=True),
        {"updates": AttributeInference("updates", classifiers=("mlp-apm", "tree", "svc", "knn"))},
    ),
    # §2.2: user vectors, 80 % shadow users; XGBoost and a three-layer perceptron.
    "aegis": Audit(
        "aegis",
        replace(BARE, known=0.8, stratified=True, repeats=5, grants=("user_vectors",)),
        {"embeddings": AttributeInference("embeddings", classifiers=("xgboost-aegis", "mlp-aegis"))},
    ),
    # §5.1: user vectors, classes balanced by leaving users out, 20 % known, 40 splits.
    "fedau2": Audit(
        "fedau2",
        replace(BARE, balanced=True, repeats=40, grants=("user_vectors",)),
        {"embeddings": AttributeInference("embeddings", classifiers=("mlp-fedau2",))},
    ),
}


def preset(name: str, attributes: Sequence[str] = (), where: str = "threat.also") -> Audit:
    """A protocol by name, for some attributes or for all; `where` it was asked for.

    Raises:
        BadInput: Where there is none of that name.
    """
    if name not in PRESETS:
        raise BadInput(where, f'no protocol "{name}"', nearest(name, PRESETS))
    found = PRESETS[name]
    return replace(found, threat=replace(found.threat, attributes=tuple(attributes)))
