"""Gauss: powers of covariances, the optimal map between two Gaussians, and the Gaussian between several."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["affine", "barycentre", "power", "ridged", "transport"]

FLAT = 1e-12  # an axis whose variance is below this share of the largest has none
NEAR = 1e-4  # the relative change at which a barycentre is near enough: any common target equalises
TURNS = 15


def power(covariance: Tensor, exponent: float) -> Tensor:
    """A power of a symmetric matrix; axes without variance stay without.

    >>> power(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), -0.5)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    value, axis = torch.linalg.eigh(covariance)
    there = value > FLAT * value[-1].clamp(min=0)
    axis = axis[:, there]
    found: Tensor = (axis * value[there] ** exponent) @ axis.T
    return found


def transport(source: Tensor, target: Tensor) -> Tensor:
    """The symmetric matrix that carries one covariance to another and moves a Gaussian least.

    >>> transport(torch.tensor([[4.0]]), torch.tensor([[9.0]]))
    tensor([[1.5000]])
    """
    root, back = power(source, 0.5), power(source, -0.5)
    return back @ power(root @ target @ root, 0.5) @ back


def barycentre(covariances: Tensor, weights: Tensor) -> Tensor:
    """The covariance ``[d, d]`` between several ``[k, d, d]`` that is the least mean cost of transport away.

    Of two it is in closed form; else by the fixed point of Álvarez-Esteban et al., 2016.

    >>> barycentre(torch.tensor([[[1.0]], [[9.0]]]), torch.tensor([0.5, 0.5]))
    tensor([[4.]])
    """
    weights = weights / weights.sum()
    if len(covariances) == 2:
        map_ = transport(covariances[0], covariances[1])
        half = weights[0] * torch.eye(len(map_), dtype=map_.dtype) + weights[1] * map_
        return half @ covariances[0] @ half
    middle = torch.einsum("k,kij->ij", weights, covariances)
    for _ in range(TURNS if len(covariances) > 1 else 0):
        root, back = power(middle, 0.5), power(middle, -0.5)
        mean = sum(w * power(root @ c @ root, 0.5) for w, c in zip(weights, covariances, strict=True))
        after = back @ mean @ mean @ back
        near = (after - middle).abs().max() < NEAR * middle.abs().max()
        middle = after
        if bool(near):
            break
    return middle


def ridged(covariance: Tensor, share: float) -> Tensor:
    """A covariance with a share of its mean variance added on every axis."""
    d = len(covariance)
    return covariance + share * covariance.trace() / d * torch.eye(d, dtype=covariance.dtype)


def affine(vectors: Tensor, group: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """``x + x·matrix + shift``, with those of each user's group; users of group -1 stay.

    ``vectors [n, d]``, ``group [n]``, ``matrix [groups, d, d]``, ``shift [groups, d]``.
    """
    moved = vectors.clone()
    for k in group[group >= 0].unique().tolist():
        own = group == k
        moved[own] += vectors[own] @ matrix[k] + shift[k]
    return moved
