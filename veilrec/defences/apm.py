"""APM: Laplace noise in proportion to how little each component of the model resists attribute inference.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", 2023 (§4, Algorithm 2, §5.7).
Acts at: on_upload, or after_epoch where the noise comes after every local epoch.
Eq. (11) and §5.7 → `order` (they disagree; §5.7 fits the measured leak); p(θ) of §4 → `budget`; λ = 2δ/p(θ),
Eq. (12) → `noise`; Algorithm 2 → `after_epoch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import ClassVar, Literal

from torch import Tensor

from veilrec.base.limits.bounds import Positive
from veilrec.base.params import Message, Params, Rows, Scope, part_of
from veilrec.defences.noise.blurring import widen
from veilrec.defences.noise.noisy import Clip, Noise, Noisy, every_row, values
from veilrec.defences.noise.sampling import lattice
from veilrec.errors import BadInput, nearest
from veilrec.model import Device, Recommender
from veilrec.privacy.mechanism import Mechanism, exact
from veilrec.protocol import Protocol

__all__ = ["APM", "component_of"]

COMPONENTS = ("user", "item", "mlp1", "mlp2")
ORDERS = {
    "section-5.7": ("user", "mlp1", "mlp2", "item"),  # ε = 30, 40, 50, 60
    "equation-11": ("user", "item", "mlp1", "mlp2"),
}


def component_of(part: str, components: Mapping[str, str]) -> str:
    """The component of the paper's model that a part stands for: by `components`, else by the part's name.

    Raises:
        BadInput: Where the name says nothing.
    """
    if part in components:
        return components[part]
    for component in ("user", "item"):
        if component in part:
            return component
    if part.startswith("mlp") or part == "predict":
        return "mlp1" if part.startswith("mlp1") and not part[4:5].isdigit() else "mlp2"
    raise BadInput(
        "defence.components",
        f'part "{part}" is no component of the paper',
        f"name one for it: {', '.join(COMPONENTS)}",
    )


@dataclass(frozen=True)
class APM(Noisy):
    """Clip every weight to ±`clip`, then add Laplace noise: the most where attacks find the most.

    The guarantee covers values one by one, and an ε of 30 to 60 for each of them rules nothing out by itself:
    only attacks can show the effect of the noise. With ``low = high`` all components get the same noise: 60
    is the paper's FixRec-min, 30 its FixRec-max. Without `high`, `low` alone decides the amount of noise.

    >>> {part: float(APM(low=30.0).budget(part)) for part in ("user", "mlp1", "mlp2", "item")}
    {'user': 30.0, 'mlp1': 40.0, 'mlp2': 50.0, 'item': 60.0}
    >>> from veilrec.models.fedncf import FedNCF
    >>> from veilrec.protocols.fedavg import FedAvg
    >>> declared = APM(clip=0.5).declares(FedNCF(3, dim=2, head=(4,)), FedAvg())
    >>> {noise.part: noise.epsilon for noise in declared}
    {'item': 60.0, 'mlp1': 40.0, 'mlp2': 50.0}

    Attributes:
        clip: Bound δ on a weight.
        low: ε_min, for the least resistant component.
        high: ε_max, for the most resistant one; by default twice `low`, as 60 is to 30.
        order: Components from the least to the most resistant: ``section-5.7`` (user, mlp1, mlp2, item, after
            what was measured), ``equation-11`` (user, item, mlp1, mlp2), or a list of them.
        components: The component of a part whose name does not reveal it: ``{part = "mlp2"}``.
        rows: Noise on ``all`` rows of item tables, so that whole tables go up, as in the paper; or on the
            ``touched`` ones, whose numbers then reveal the items that a user touched.
        every: Noise once for each ``upload``, as §4 describes it, or after every local ``epoch``, as
            Algorithm 2 has it; a user's own vector, which the server never sends, always on its way out.
        what: The values that are clipped: the ``weights`` themselves, as in the paper; their ``change``
            against the weights received; or ``gradients``, where the protocol sends them.
        parts: The parts that are blurred; empty for all that leave the device.
    """

    leads: ClassVar[frozenset[str]] = frozenset({"on_upload"})

    clip: Clip = 0.5
    low: Positive = 30.0
    high: Positive | None = None
    order: Literal["section-5.7", "equation-11"] | tuple[str, ...] = "section-5.7"
    components: Mapping[str, str] = field(default_factory=dict)
    rows: Literal["touched", "all"] = "all"
    every: Literal["upload", "epoch"] = "upload"
    what: Literal["weights", "change", "gradients"] = "weights"
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most < self.low:
            what = f"{self.most:g} is below low"
            raise BadInput("defence.high", what, f"give {self.low:g} or more")
        high = "low" if self.high is None else "high"
        for where, epsilon in (("low", self.low), (high, self.most)):
            lattice(2 * exact(self.clip) / exact(epsilon), exact(self.clip), f"defence.{where}")
        if self.every == "epoch" and self.what == "gradients":
            raise BadInput("defence.every", "gradients are measured once", 'set it to "upload"')
        for where, names in (("order", self.ranking), ("components", self.components.values())):
            for name in names:
                if name not in COMPONENTS:
                    raise BadInput(f"defence.{where}", f'"{name}" is no component', nearest(name, COMPONENTS))
        if not self.ranking or len(set(self.ranking)) < len(self.ranking):
            raise BadInput("defence.order", "a component is missing or there twice", "list each once")

    @property
    def most(self) -> float:
        """ε_max: `high`, or twice `low`."""
        return 2 * self.low if self.high is None else self.high

    @property
    def ranking(self) -> tuple[str, ...]:
        """Components from the least to the most resistant: l(θ) of Eq. (11) is the place in it."""
        return ORDERS[self.order] if isinstance(self.order, str) else tuple(self.order)

    def budget(self, part: str) -> Fraction:
        """ε of each value of a part: p(θ).

        Raises:
            BadInput: Where the part stands for no component, or for one that is not in the order.
        """
        component, ranking = component_of(part, self.components), self.ranking
        if component not in ranking:
            raise BadInput(
                "defence.order", f'"{component}" is missing', f"rank it: part {part!r} stands for it"
            )
        step = (exact(self.most) - exact(self.low)) / max(1, len(ranking) - 1)
        return exact(self.low) + step * ranking.index(component)

    @cached_property
    def noise(self) -> Noise:
        """Eq. (12), with λ = 2δ/p(θ) for each part."""
        clip = exact(self.clip)
        return Noise(
            "laplace",
            cache(lambda part: 2 * clip / self.budget(part)),
            clip,
            rows=self.rows,
            what=self.what,
            parts=tuple(self.parts),
        )

    def acts(self, hook: str) -> bool:
        return super().acts(hook) and (hook != "after_epoch" or self.every == "epoch")

    def after_epoch(self, params: Params, device: Device) -> Params:
        """Algorithm 2: what was received and trained is clipped and noised; what stays private is not."""
        held: Message = {}
        for name, weight in params.items():
            if name in device.sent and self.noise.covers(name, weight):
                table = component_of(part_of(name), self.components) == "item"
                held[name] = Rows(device.batch.rows, weight) if table else weight
        noised = replace(self._noise, rows="touched").apply(held, device)
        return {**params, **{name: values(value) for name, value in noised.items()}}

    def on_upload(self, upload: Message, device: Device) -> Message:
        if self.every == "upload":
            return super().on_upload(upload, device)
        own = {n: v for n, v in upload.items() if n not in device.sent}
        came = {n: v for n, v in upload.items() if n in device.sent and self.noise.covers(n, v)}
        whole = {n: self._untouched(n, v, device) for n, v in came.items()} if self.rows == "all" else {}
        return {**upload, **self._noise.apply(own, device), **whole}

    def _untouched(self, name: str, value: Tensor | Rows, device: Device) -> Tensor | Rows:
        """A table with every row: those that were not touched are noised now, the others have been."""
        if not isinstance(value, Rows):
            return value
        table = device.sent[name].to(value.value.dtype)
        received = Rows(every_row(table, value.row.dim() - 1), table)
        noised = values(replace(self._noise, rows="touched").apply({name: received}, device)[name])
        return Rows(received.row, widen(noised, value.row, value.value))

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        for part in self.components:
            if part not in model.parts:
                where = f"defence.components.{part}"
                raise BadInput(where, "the model has no such part", nearest(part, model.parts))
        if self.every == "upload":
            return super().declares(model, protocol)
        if protocol.sends_gradients:
            raise BadInput("defence.every", '"epoch", but devices send gradients', 'set it to "upload"')
        declared = super().declares(model, protocol)
        for part in dict.fromkeys(mechanism.part for mechanism in declared):
            kind = model.parts[part]
            table = component_of(part, self.components) == "item"
            if kind.scope is Scope.SHARED and table != (kind.rows == "item"):
                what = f'part "{part}" is {"no" if table else "a"} table of items'
                raise BadInput("defence.components", what, 'under every = "epoch" only those are "item"')
        return tuple(replace(mechanism, every="epoch") for mechanism in declared)
