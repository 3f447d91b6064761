"""Protocols of attacks by name: our own, and each paper's, as its authors ran it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.dlg import DLG
from veilrec.attacks.idlg import iDLG
from veilrec.attacks.item_nets import ItemNets
from veilrec.attacks.one_hot import ColumnNorms
from veilrec.errors import BadInput, nearest
from veilrec.lab.lab import Audit
from veilrec.lab.threat import CONSENTING, Known, Threat, known_from

__all__ = ["OWN", "PRESETS", "preset"]

OWN = "veilrec"
WORST = ("logistic", "mlp", "boosting", "forest", "knn", "svc", "qda")
# On wide readings, where boosting costs most:
QUICK = ("logistic", "mlp", "forest", "knn")
BARE = Threat(stratified=False, by_part=False, membership=False)
# One draw of a tenth of the users moves a score by more than a defence does: five draws, and their mean.
TENTH = replace(BARE, known=0.1, repeats=5)
LEVELLED = replace(BARE, known=0.1, stratified=True, balanced=True)
VECTORS = replace(BARE, known=0.8, stratified=True, folds=2, grants=("user_vectors",))
# Its authors give the whole update to the net; 4,096 columns a weight are as close as memory allows.
APM = AttributeInference("updates", classifiers=("mlp-apm",), columns=4096)
COMPONENTS = ("item", "user", "mlp1", "mlp2")  # of its model; those that are not uploaded are left out

# Eq. 7: user vector ⊕ mean vector of the granted items; 20 % known, one split, best test epoch of 150.
PARD = AttributeInference("parameters", classifiers=("mlp-pard",))

PRESETS = {
    # Nothing granted, the worst of seven families on all readings that there are, chosen on known users.
    OWN: Audit(
        OWN,
        Threat(),
        {
            "updates": AttributeInference("updates", classifiers=QUICK),
            "profile": AttributeInference("profile", classifiers=QUICK),
            "parameters": AttributeInference("parameters", classifiers=WORST),
            "embeddings": AttributeInference("embeddings", classifiers=WORST),  # where vectors are uploaded
            "recovered": AttributeInference("recovered", classifiers=WORST),  # where a head tells them
        },
        picks=True,
    ),
    "pard": Audit(
        "pard",
        replace(BARE, selection="oracle", grants=("interactions", "user_vectors")),
        {"parameters": PARD},
    ),
    # Its figure 7: what is uploaded of a user without and with the items, and what never leaves.
    "pard-halves": Audit(
        "pard-halves",
        replace(BARE, selection="oracle", grants=("interactions", "withheld")),
        {name: replace(PARD, reads=name) for name in ("embeddings", "parameters", "withheld")},
    ),
    # §3.3: the whole update ΔΘ/μ, and each component by the perceptron (its figure 4); ζ = 0.1 known.
    "apm": Audit(
        "apm",
        replace(TENTH, by_part=True),
        {"updates": APM},
        alone=APM,
    ),
    # §5.8: the same with the paper's other attackers beside it.
    "apm-four": Audit(
        "apm-four",
        TENTH,
        {"updates": replace(APM, classifiers=("mlp-apm", "tree-apm", "svc-apm", "knn-apm"))},
    ),
    # Not in the paper: whoever knows the layout of the features reads an attribute off the update of E_U.
    "apm-columns": Audit("apm-columns", TENTH, {"ColumnNorms": ColumnNorms()}),
    # The order of its noise, measured: what each component of its model gives away alone.
    "apm-components": Audit(
        "apm-components",
        Threat(by_part=False, membership=False),
        {part: AttributeInference("updates", (part,), ("logistic", "mlp-apm"), 1024) for part in COMPONENTS},
        picks=True,
    ),
    # §2.2: user vectors, 80 % shadow users, one split: its accuracies on ML-100K are multiples of 1/189.
    # XGBoost and a three-layer perceptron, neither of which is chosen by held-out users.
    "aegis": Audit(
        "aegis",
        VECTORS,
        {"embeddings": AttributeInference("embeddings", classifiers=("xgboost-aegis", "mlp-aegis"))},
    ),
    # The same vectors and the same split by our own seven families, the worst chosen on known users.
    "aegis-families": Audit(
        "aegis-families",
        VECTORS,
        {"embeddings": AttributeInference("embeddings", classifiers=WORST)},
    ),
    # §5.1: user vectors, classes balanced by leaving users out, 20 % known, 40 splits.
    "fedau2": Audit(
        "fedau2",
        replace(BARE, balanced=True, repeats=40, grants=("user_vectors",)),
        {"embeddings": AttributeInference("embeddings", classifiers=("mlp-fedau2",))},
    ),
    # The same vectors by our own seven families, which standardise what they read: one net is easily fooled.
    "fedau2-families": Audit(
        "fedau2-families",
        replace(BARE, balanced=True, repeats=5, grants=("user_vectors",)),
        {"embeddings": AttributeInference("embeddings", classifiers=WORST)},
    ),
    # The same on FedRAP as its authors ran it: the whole residual, a net an item, three splits.
    "fedau2-items": Audit(
        "fedau2-items",
        replace(BARE, stratified=True, balanced=True, repeats=3, grants=("tables",)),
        {"ItemNets": ItemNets()},
    ),
    # §3.3, figure 4: one gradient of every user's adversary, as its authors match it, as we do, and read off.
    # Nobody's label is needed; the tenth that is known only tells which of the three to go by.
    "fedau2-gradients": Audit(
        "fedau2-gradients",
        LEVELLED,
        {"DLG": DLG(starts=(1.0,), soft_label=False), "DLG-tries": DLG(), "iDLG": iDLG()},
    ),
    # DLG as Zhu, Liu and Han have it: the label is a softmax, and there is one start, but by Adam.
    "dlg": Audit("dlg", LEVELLED, {"DLG-softmax": DLG(starts=(1.0,))}),
    # What DSVAE draws averages out: a user who takes part again and again tells the label after all.
    "fedau2-uploads": Audit(
        "fedau2-uploads",
        LEVELLED,
        {f"iDLG-{k}": iDLG(uploads=k) for k in (1, 5, 15)},
    ),
    # The same from what was really uploaded in training, as far as it was kept; one more upload beside it.
    "fedau2-recorded": Audit(
        "fedau2-recorded",
        LEVELLED,
        {"iDLG-kept": iDLG(kept=True), "iDLG": iDLG()},
    ),
    # FedAU²'s DLG on each user's last upload of training: the whole head must be kept.
    "dlg-recorded": Audit(
        "dlg-recorded",
        LEVELLED,
        {"DLG-kept": DLG(starts=(1.0,), soft_label=False, kept=True)},
    ),
}


def preset(name: str, attributes: Sequence[str] = (), where: str = "threat.also") -> Audit:
    """A protocol by name, for some attributes or for all; `where` it was asked for.

    ``apm@0.2`` is the protocol ``apm`` with a fifth of the users known, ``pard@consenting`` is ``pard`` with
    those known who consent; either goes by that whole name.

    Raises:
        BadInput: Where there is none of that name, or what stands after the @ is neither.
    """
    short, cut, who = name.partition("@")
    if short not in PRESETS:
        raise BadInput(where, f'no protocol "{short}"', nearest(short, PRESETS))
    found = PRESETS[short]
    threat = replace(found.threat, attributes=tuple(attributes))
    if not cut:
        return replace(found, threat=threat)
    known = _known(name, who, where)
    told = known if isinstance(known, str) else f"{known:g}"
    return replace(found, name=f"{short}@{told}", threat=replace(threat, known=known))


def _known(name: str, text: str, where: str) -> Known:
    """The known users that a protocol's name ends in."""
    known = known_from(text)
    if known is None:
        short = name.partition("@")[0]
        fix = f"give a number between 0 and 1, as in {short}@0.2, or {short}@{CONSENTING}"
        raise BadInput(where, f'"{text}" in "{name}" is no share of the users', fix)
    return known
