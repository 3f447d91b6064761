"""Names: attackers, readings, parts and measures as people say them, and what each word of a report means."""

from __future__ import annotations

__all__ = ["MEANINGS", "READINGS", "attacker_words", "part_words"]

READINGS = {
    "updates": "changes",
    "parameters": "weights and moved rows",
    "profile": "history read from the upload",
    "embeddings": "user vector",
    "recovered": "recovered inputs",
    "withheld": "withheld vector",
}
LEARNERS = {
    "boosting": "boosted trees",
    "forest": "random forest",
    "knn": "nearest neighbours",
    "lda": "linear discriminants",
    "logistic": "logistic regression",
    "mlp": "perceptron",
    "qda": "quadratic discriminants",
    "ridge": "ridge regression",
    "svc": "support vectors",
    "tree": "decision tree",
    "xgboost": "boosted trees (XGBoost)",
}
PARTS = {"item": "item vectors", "user": "user vector", "bias": "biases", "output": "output layer"}
MEANINGS = {
    "AUC": "Of two people of different classes, how often the attacker ranks them right. 0.5 is chance, 1 is "
    "always; below 0.5 it reads them turned round.",
    "interval": "The 95 % interval: where the number would lie for other people like these, and other seeds.",
    "chance": "What an attacker reaches who looks at nothing.",
    "popularity": "Everyone is shown the same items, the most popular ones. A model that is not above this "
    "has learned nothing personal.",
    "worst attacker": "Of several families of attackers the one that did best on people whose answer it "
    "knew; the people attacked had no say in the choice.",
    "granted": "What the attacker is given beyond the uploads, to be on the safe side.",
    "oracle": "An attacker that was chosen with the right answers in hand, which no real attacker has.",
    "shuffled labels": "What the same attacker reaches where the answers that it learned from are dealt out "
    "anew: the size of its luck.",
    "ε": "What noise guarantees: the odds of any guess about one person change by a factor of at most e to "
    "the power of ε. Below 1 is strong, above 10 next to nothing.",
    "sure": "Found while at most one in a hundred of the others is accused wrongly.",
    "severity": "By the way from chance to certainty: low up to a fifth of it (AUC 0.6), medium up to a half "
    "(AUC 0.75), high beyond. No leak is shown where the interval covers chance.",
    "upload": "What one device sends in one round, after every defence.",
    "collapsed": "Below popularity: the model has learned nothing, so that nothing could leak.",
    "seed": "One training with its own random numbers; three or more tell luck from effect.",
}


def attacker_words(name: str, sends: str = "") -> str:
    """``gradients, logistic regression`` for what a result calls ``updates/logistic``.

    Args:
        name: Of an attacker, as results have it.
        sends: What devices send, by the protocol's setting: changes are then called so.
    """
    reads, _, learner = name.partition("/")
    if reads not in READINGS or not learner:
        return name
    seen = sends if reads == "updates" and sends == "gradients" else READINGS[reads]
    base, _, paper = learner.partition("-")
    spoken = LEARNERS.get(base, base)
    return f"{seen}, {spoken}{f' as in {paper}' if paper else ''}"


def part_words(name: str) -> str:
    """``item vectors`` for the part ``item``; layers and what a defence adds keep their names."""
    part, comma, rest = name.partition(",")
    return f"{PARTS.get(part, part.replace('_', ' '))}{comma}{rest}"
