"""A map of the users: their vectors in two dimensions, with attributes. It shows people: only when asked."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.interactions import Interactions

__all__ = ["user_map"]

MOST = 2000  # users on a map: more are a blot


def user_map(
    vectors: Tensor, data: Interactions, method: Literal["pca", "tsne"] = "pca", seed: int = 0
) -> dict[str, Any]:
    """``vectors [users, dim]`` as points with their labels; a keyed sample where there are many users."""
    users = Keys.seed(seed).fold("map").order(len(vectors))[:MOST].sort().values
    some = vectors[users].double()
    points = principal(some) if method == "pca" else _neighbours(some, seed)
    return {
        "method": method,
        "points": [[round(x, 4), round(y, 4)] for x, y in points.tolist()],
        "users": len(users),
        "of": len(vectors),
        "attributes": {
            name: {"classes": list(data.classes.get(name, ())), "label": label[users].tolist()}
            for name, label in data.attributes.items()
        },
    }


def principal(vectors: Tensor) -> Tensor:
    """``[n, 2]`` the two directions of most variance; signs are fixed, so that a map does not flip."""
    centred = vectors - vectors.mean(0)
    if min(centred.shape) < 2:
        return torch.nn.functional.pad(centred, (0, max(0, 2 - centred.shape[1])))[:, :2]
    axes: Tensor = torch.linalg.svd(centred, full_matrices=False)[2]
    largest = axes[:2].abs().argmax(1)
    signs = axes[:2].gather(1, largest[:, None]).sign()
    return centred @ (axes[:2] * signs).T


def _neighbours(vectors: Tensor, seed: int) -> Tensor:
    from sklearn.manifold import TSNE

    nearby = min(30.0, max(1.0, (len(vectors) - 1) / 3))
    return torch.from_numpy(
        TSNE(perplexity=nearby, init="pca", random_state=seed).fit_transform(vectors.numpy())
    )
