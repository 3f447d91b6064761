"""Classifiers: the attackers by name. A new one is one entry of `CLASSIFIERS`.

Whoever reads features from a transcript hands them here with the known labels, and gets back what an
attacker says of every user. Nothing is fitted to a user whose label is not known.

Papers: PARD §II-B, APM §3.3, Aegis §4.1 and FedAU² §5.1 have the attackers that bear their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from veilrec.attacks.common.estimators import Discriminant, Floor, Quadratic, Radial, Scaled, Tuned
from veilrec.attacks.common.jobs import FAMILIES, Classifier, Job, Sizes, answers, stages
from veilrec.attacks.common.perceptron import Perceptron
from veilrec.errors import BadInput, nearest

__all__ = ["CLASSIFIERS", "FAMILIES", "Classifier", "Job", "Sizes", "fit_predict", "staged"]


def fit_predict(
    name: str, features: Tensor, jobs: Sequence[Job], *, threads: int | None = None
) -> list[Tensor]:
    """Fit an attacker for each job and predict all users: ``[users, classes]`` probabilities, float64.

    A class that no user to learn from has gets probability 0; a continuous attribute gives ``[users, 1]``.

    Args:
        name: Of the attacker, in `CLASSIFIERS`.
        features: ``[users, width]`` float32, what is known of each user.
        jobs: What to learn. Nets learn several jobs at once, each what it would learn alone.
        threads: How many jobs (or stacks of nets) side by side; as many as torch has threads.

    Raises:
        BadInput: Where the attacker is unknown or not installed, has no form for values, or cannot learn.
    """
    return answers(_find(name, features), features, jobs, threads or torch.get_num_threads())


def staged(name: str, features: Tensor, job: Job) -> Tensor:
    """``[stages, users, classes]`` an attacker's predictions while it learns; of most attackers one stage."""
    return stages(_find(name, features), features, job)


def _find(name: str, features: Tensor) -> Classifier:
    if name not in CLASSIFIERS:
        raise BadInput("attack.classifiers", f'no attacker "{name}"', nearest(name, CLASSIFIERS))
    ends = features.aminmax() if features.numel() else ()  # without a copy: some readings are wide
    if not all(bool(end.isfinite()) for end in ends):
        raise BadInput(
            "attack.reads", "what was read is not finite", "look for NaN or infinity in the uploads"
        )
    return CLASSIFIERS[name]


# scikit-learn is imported where it is first wanted, because that takes a second.


def _mlp(shape: Sizes) -> Any:
    return Perceptron(values=not shape.classes, random_state=shape.seed)


def _logistic(shape: Sizes) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if not shape.classes:
        return Scaled(RidgeCV([10.0**power for power in range(-1, 6)]), values=True)
    settings = {"max_iter": 2000, "tol": 1e-3, "random_state": shape.seed}
    strengths = [LogisticRegression(C=10.0**power, **settings) for power in range(-4, 2)]
    return Scaled(Tuned(strengths, random_state=shape.seed))


def _lda(shape: Sizes) -> Any:
    strengths = [Discriminant(shrinkage) for shrinkage in (0.9, 0.5, 0.2, 0.05, 0.01)]
    return Scaled(Tuned(strengths, random_state=shape.seed))


def _qda(shape: Sizes) -> Any:
    spheres = [Quadratic(sphere) for sphere in (1.0, 0.1, 0.01)]
    return Scaled(Tuned(spheres, random_state=shape.seed))


def _tree(shape: Sizes) -> Any:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    kind = DecisionTreeClassifier if shape.classes else DecisionTreeRegressor
    return kind(max_depth=8, min_samples_leaf=5, random_state=shape.seed)


def _svc(shape: Sizes) -> Any:
    from sklearn.svm import SVC, SVR

    return Scaled(SVC(random_state=shape.seed) if shape.classes else SVR(), values=not shape.classes)


def _knn(shape: Sizes) -> Any:
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    kind = KNeighborsClassifier if shape.classes else KNeighborsRegressor
    near = min(shape.rows, round(2 * shape.rows**0.5))  # many, because one neighbour's label says little
    return Scaled(kind(near, weights="distance", n_jobs=1), values=not shape.classes)


def _forest(shape: Sizes) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if shape.classes else RandomForestRegressor
    return kind(200, min_samples_leaf=3, max_features="sqrt", n_jobs=1, random_state=shape.seed)


def _boosting(shape: Sizes) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if shape.classes else HistGradientBoostingRegressor
    return kind(
        max_iter=100 if shape.classes < 8 else 40,  # an iteration is a tree for every class
        max_leaf_nodes=8,
        min_samples_leaf=10,
        max_bins=63,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=shape.seed,
    )


def _xgboost(shape: Sizes, **settings: Any) -> Any:
    try:
        from xgboost import XGBClassifier, XGBRegressor
    except ModuleNotFoundError as error:
        fix = "pip install 'veilrec[boost]'"
        raise BadInput("attack.classifiers", "xgboost is not installed", fix) from error

    kind = XGBClassifier if shape.classes else XGBRegressor
    return kind(n_jobs=1, random_state=shape.seed, **settings)


def _floor(kind: Literal["majority", "random", "uniform"]) -> Callable[[Sizes], Any]:
    return lambda shape: Floor(kind, random_state=shape.seed)


# As the papers have them; what a paper leaves open is named.


def _mlp_pard(shape: Sizes) -> Any:
    """Three shapes, one for each attribute of its authors' code, told apart by the number of classes.

    The binary one ends there in one sigmoid; two outputs under a softmax say the same. Its second dropout
    stands after the layer before the last, and the slope for many classes is that for few: both are ours.
    """
    trained: dict[str, Any] = {"rate": 0.05, "momentum": 0.9, "decay": 0.0, "epochs": 150, "scaled": False}
    if shape.classes == 2:
        layers: dict[str, Any] = {"hidden": (1.0, 1.0, 0.5), "slope": 0.02, "dropout": (0.0, 0.5, 0.5)}
    elif shape.classes < 10:
        layers = {"hidden": (1.0, 1.0, 0.5), "slope": 0.2, "dropout": (0.0, 0.0, 0.5)}
    else:
        layers = {"hidden": (1.0, 0.5), "slope": 0.2, "dropout": (0.0, 0.3)}
    return Perceptron(**layers, **trained, random_state=shape.seed)


def _mlp_apm(shape: Sizes) -> Any:
    """The paper gives the layers; optimiser, epochs, batch and scaling are ours."""
    return Perceptron((100, 30), rate=1e-3, decay=0.0, batch=32, random_state=shape.seed)


def _tree_apm(shape: Sizes) -> Any:
    """The paper names the kind alone: scikit-learn's defaults, on columns as they are; so the next two."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=shape.seed)


def _svc_apm(shape: Sizes) -> Any:
    from sklearn.svm import SVC

    return Radial(SVC(kernel="precomputed", random_state=shape.seed))


def _knn_apm(shape: Sizes) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(min(5, shape.rows))  # 5 is the default; there must be as many


def _mlp_aegis(shape: Sizes) -> Any:
    """The paper says three layers; all else is ours."""
    return Perceptron((128, 64), rate=1e-3, decay=0.0, batch=128, epochs=200, random_state=shape.seed)


def _mlp_fedau2(shape: Sizes) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((100,), alpha=1.0, learning_rate_init=0.1, max_iter=500, random_state=shape.seed)


_BOOSTED = partial(
    _xgboost, n_estimators=100, max_depth=3, learning_rate=0.1, subsample=0.8, colsample_bytree=0.3
)

CLASSIFIERS: dict[str, Classifier] = {
    "mlp": Classifier("neural", _mlp, _mlp),
    "logistic": Classifier("linear", _logistic, _logistic),
    "lda": Classifier("linear", _lda),
    "qda": Classifier("quadratic", _qda),
    "tree": Classifier("tree", _tree, _tree),
    "svc": Classifier("kernel", _svc, _svc),
    "knn": Classifier("neighbours", _knn, _knn),
    "forest": Classifier("forest", _forest, _forest),
    "boosting": Classifier("boosting", _boosting, _boosting),
    "xgboost": Classifier("boosting", _BOOSTED, _BOOSTED),
    "mlp-pard": Classifier("neural", _mlp_pard),
    "mlp-apm": Classifier("neural", _mlp_apm),
    "tree-apm": Classifier("tree", _tree_apm),
    "svc-apm": Classifier("kernel", _svc_apm),
    "knn-apm": Classifier("neighbours", _knn_apm),
    "mlp-aegis": Classifier("neural", _mlp_aegis),
    "mlp-fedau2": Classifier("neural", _mlp_fedau2),
    "xgboost-aegis": Classifier(
        "boosting", partial(_xgboost, n_estimators=50, max_depth=4, learning_rate=0.5)
    ),
    "majority": Classifier("floor", _floor("majority"), _floor("majority")),
    "random": Classifier("floor", _floor("random")),
    "uniform": Classifier("floor", _floor("uniform")),
}
