"""PARD: a user's vector in two, one uploaded without attributes, and one that stays and may carry them.

Paper: Zhao et al., "Privacy-Aware Representation Decoupling in Federated Recommendation against Attribute
Inference Attacks".
Acts at: attach, posts, helper_loss, penalty.
§III-A, Eqs. (16) and (21), and §III-B, Eqs. (29) to (34) → `estimators`; Eq. (35) → `split`; D_pub, Eq. (6) →
`posts`; Eq. (37) → `helper_loss`; Eq. (38) → `penalty`; what is uploaded (§III-D) follows from the scopes.

Where the paper and its public code differ, the paper is the default; `reference` is the code. Three things
follow neither: Eqs. (24) to (28) print a minimum where Eq. (23) says maximise I(z^re; μ), as is done here;
Eqs. (21), (30), (34) and (36) are sums over rows and here means, so that a learning rate does not depend on
the amount of data; and the user vector is averaged by Eq. (5) and Algorithm 1, which leaves nothing of it, so
that it is only collected unless `average_user` asks for the printed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from veilrec.base.limits.bounds import Amount, PartShare, RoundsOrNone, Width
from veilrec.base.params import Params, Part, Scope
from veilrec.base.rows import pick, shares
from veilrec.defence import Defence, HelperSteps, Posting, guarded
from veilrec.defences.common.estimators import Estimators, distance, dropped, guessing
from veilrec.defences.common.split import SplitRecommender
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender, with_part
from veilrec.wire.codec import Spec

__all__ = ["PARD"]

RATE, MOMENTUM, CLIP = 0.1, 0.9, 5.0  # of the estimators' SGD: the code's; the paper tells the rate alone
DROPPED = 0.5  # of a hidden layer; in the code 0.3 for occupations
USER, USER_RE, ITEMS, LABEL = "pard.user", "pard.user_re", "pard.items", "pard.label."


class EstimatorRows(NamedTuple):
    """Some users as their estimators see them, one row each."""

    ir: Tensor  # [… , n, 2 · dim] z_u^ir beside the mean of the user's item vectors
    re: Tensor  # [… , n, dim] z_u^re
    label: Tensor  # [… , attributes, n], -1 where unknown


@dataclass(frozen=True)
class PARD(Defence):
    """Upload z_u^ir, trained to reveal no attribute; z_u^re and the predictor stay and carry attributes.

    Estimators on each device learn from D_pub, the posts of consenting users. ``ir`` guesses attributes from
    the uploaded vector, and learns from the user's own row besides; ``FP`` guesses them from z_u^re; ``IP``
    guesses z_u^re from an attribute's value. The vectors are trained against ``ir`` and with the others.

    `plan.lr` of `user` must be far below that of `user_re`, a thirtieth in papers/pard. At one rate for both,
    z_u^ir runs from its own estimator in a direction that its label chooses, and becomes a function of the
    label: it then reveals more than a vector that nobody guards.

    A device knows its user's labels whether they are shared or not, and Eqs. (16), (29) and (33) use them:
    consent decides about posts, not about reading at home. So an upload depends on labels that its user does
    not share, by design: z_u^ir is pushed to where they are hard to guess. Nothing is proved of that.

    Whoever posts gives away z_u^ir, z_u^re, the mean of their item vectors and their labels, without noise.
    z_u^re is trained to carry all guarded attributes at once, so only those post who share every one of them.

    Scores are those of the predictor: `head` and `sharing` of the wrapped model go (`SplitRecommender`).

    The two halves of a user's vector, and the estimators that stay on the device:

    >>> from veilrec.models.fedmf import FedMF
    >>> model = FedMF(3, dim=2)
    >>> model.classes = {"gender": 2}
    >>> {name: part.scope.value for name, part in PARD().attach(model).parts.items() if name != "item"}
    {'user': 'exposed', 'user_re': 'private', 'predictor': 'private', 'estimators': 'private'}

    Attributes:
        lambda_ir, lambda_re: Weights of Eq. (16), and of Eqs. (29) and (33).
        warm_up: Rounds in which both are 0; as many as a whole pre-training, with fine-tuning after it.
            Nothing is guarded in them, and validation chooses among later rounds.
        attributes: Which to guard; empty for all that the data has.
        public_share: Share of D_pub that a device draws anew for each step of its estimators; 1 for all.
        head: Widths of the predictor's hidden layers.
        join: The predictor reads both user vectors side by side, or (code) their sum.
        average_user: Whether the server averages z_u^ir and sends the mean back, as Eq. (5) is printed.
        fp: Whether ``FP`` learns from D_pub, Eq. (30), or from the user's own row besides, as ``ir`` does.
        ip: Whether ``IP`` learns from D_pub, or (code) from the user's own row.
        reads: What Eq. (16) guesses from: the mean item, as the estimator has learned it, or (code) each item
            of the batch by itself.
        reference: All that the code does otherwise, whatever `join`, `ip` and `reads` say. Estimators rest
            through the warm-up, a plain pre-training there, and learn in every other round after it: three
            steps before each step of the vectors, each on a draw of its own from D_pub, with half of the last
            hidden layer of ``ir`` and ``FP`` dropped (the vectors are trained against all of it). Eqs. (33)
            and (34) take the mean square for the norm, whose slope is as steep near as far, so that a large
            rate of `user_re` never comes to rest. The code's predictor is ``head = [32]``.
    """

    leads: ClassVar[frozenset[str]] = frozenset({"helper_loss", "penalty"})

    lambda_ir: Amount = 0.5
    lambda_re: Amount = 0.5
    warm_up: RoundsOrNone = 0
    attributes: Sequence[str] = ()
    public_share: PartShare = 0.2
    head: Sequence[Width] = (64, 32)
    join: Literal["concatenate", "add"] = "concatenate"
    average_user: bool = False
    fp: Literal["public", "both"] = "public"
    ip: Literal["public", "own"] = "public"
    reads: Literal["mean", "positives"] = "mean"
    reference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head:
            raise BadInput("defence.head", "an empty list", "give at least one width")

    @property
    def helpers(self) -> HelperSteps:  # type: ignore[override]
        """The steps of the estimators."""
        plain = HelperSteps(RATE, MOMENTUM, CLIP)
        return replace(plain, every=2, after=self.warm_up, times=3) if self.reference else plain

    @property
    def guards_from(self) -> int:
        return self.warm_up

    def attach(self, model: Recommender) -> Recommender:
        join = "add" if self.reference else self.join
        split = SplitRecommender(model, join=join, head=self.head, average=self.average_user)
        estimators = Estimators(guarded(model, self.attributes), model.dim, split.scale_of("user_re"))
        return with_part(split, "estimators", estimators, Part(Scope.PRIVATE, helper=True))

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
        """D_pub, of users who share all guarded attributes, since z_u^re reveals each of them."""
        classes = _estimators(model).classes
        vectors = dict.fromkeys((USER, USER_RE, ITEMS), Spec((model.dim,), dtype))
        labels = {LABEL + name: Spec((), torch.int64, below=n) for name, n in classes.items()}
        return Posting(tuple(classes), vectors | labels, self._post)

    def _post(self, model: Recommender, device: Device) -> Params:
        weights, batch = dict(model.named_parameters()), device.batch
        posts: Params = {USER: weights["user"], USER_RE: weights["user_re"]}
        posts[ITEMS] = _mean_items(weights["item"], batch.history)
        return posts | {LABEL + name: batch.attributes[name] for name in _estimators(model).classes}

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        """Eq. (37) ``[…]``: of one device, or of a cohort with the client axis in front."""
        weights: Params = dict(model.named_parameters())
        own, estimators = _own(model, weights, device), _estimators(model)
        if not estimators.classes:
            return own.re.new_zeros(own.re.shape[:-2])
        public = self._public(model, device)
        both = EstimatorRows(
            *(torch.cat(pair, -1 if k == 2 else -2) for k, pair in enumerate(zip(public, own, strict=True)))
        )
        unused = estimators.unused(own.re.device)
        ir, fp = (self._drop(device, which) for which in ("ir", "fp"))
        loss = guessing(weights, "ir", both.ir, both.label, unused, drop=ir)  # Eq. (21)
        taught = public if self.fp == "public" else both
        loss = loss + guessing(weights, "fp", taught.re, taught.label, unused, drop=fp)  # Eq. (30)
        taught = own if self.reference or self.ip == "own" else public
        return loss + distance(weights, taught.re, taught.label, squared=self.reference)  # Eq. (34)

    def _drop(self, device: Device, which: str) -> Callable[[Tensor], Tensor] | None:
        """The dropout of an estimator's last hidden layer while it learns; None for no dropout."""
        keys = device.keys.fold("dropout").fold(which)
        return partial(dropped, keys=keys, share=DROPPED) if self.reference else None

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        """λ_ir of Eq. (16) and λ_re of Eqs. (29) and (33) ``[…]``, after the warm-up."""
        weights: Params = dict(model.named_parameters())
        own, estimators = _own(model, weights, device), _estimators(model)
        loss = own.re.new_zeros(own.re.shape[:-2])
        if not estimators.classes:
            return loss
        unused = estimators.unused(loss.device)
        if self.lambda_ir:
            loss = loss - self.lambda_ir * self._told(weights, own, device, unused)
        if self.lambda_re:
            kept = guessing(weights, "fp", own.re, own.label, unused)  # Eq. (29)
            kept = kept + distance(weights, own.re, own.label, squared=self.reference)  # Eq. (33)
            loss = loss + self.lambda_re * kept
        return loss * (device.round >= self.warm_up)

    def _told(self, weights: Params, own: EstimatorRows, device: Device, unused: Tensor) -> Tensor:
        """``[…]`` the cross-entropy of guesses from what is uploaded; Eq. (16) is minus this."""
        if self.reads == "mean" and not self.reference:
            return guessing(weights, "ir", own.ir, own.label, unused)
        batch = device.batch
        x = torch.cat([pick(weights["user"], batch.user), pick(weights["item"], batch.item)], -1)
        seat = batch.user.unsqueeze(-2).expand(*own.label.shape[:-1], batch.user.shape[-1])
        return guessing(weights, "ir", x, own.label.gather(-1, seat), unused, batch.weight)

    def _public(self, model: Recommender, device: Device) -> EstimatorRows:
        """The rows of D_pub that a device draws for this step; none before anybody has posted."""
        lead, public = device.keys.value.shape, device.public
        names = list(_estimators(model).classes)
        if USER not in public:
            none, some = device.batch.weight, (*lead, 0, model.dim)
            label = device.keys.value.new_zeros(*lead, len(names), 0)
            return EstimatorRows(none.new_zeros(*lead, 0, 2 * model.dim), none.new_zeros(some), label)
        n = len(public[USER])
        drawn = device.keys.fold("public").order(n)[..., : max(1, round(self.public_share * n))]  # [… , k]
        ir = torch.cat([public[USER], public[ITEMS]], -1)
        label = torch.stack([public[LABEL + name][drawn] for name in names], -2)
        return EstimatorRows(ir[drawn], public[USER_RE][drawn], label)


def _estimators(model: Recommender) -> Estimators:
    found = model.get_submodule("estimators")
    assert isinstance(found, Estimators)
    return found


def _own(model: Recommender, weights: Params, device: Device) -> EstimatorRows:
    """A device's own users, ``[… , seats, …]``."""
    batch, user = device.batch, weights["user"]
    names = _estimators(model).classes
    label = (
        torch.stack([batch.attributes[name] for name in names], -2) if names else batch.user[..., None, :0]
    )
    return EstimatorRows(
        torch.cat([user, _mean_items(weights["item"], batch.history)], -1), weights["user_re"], label
    )


def _mean_items(item: Tensor, history: Tensor) -> Tensor:
    """``[…, seats, d]`` the mean vector of the items ``[…, l, d]`` that a history ``[…, seats, t]`` names."""
    return shares(history, item.shape[-2], item.dtype) @ item
