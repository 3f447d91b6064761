"""Contents of a ``paper.toml``: recipes, datasets, methods, tables and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Claim", "Contents", "Dataset", "Method", "Named", "RecipeFile", "Table"]


@dataclass(frozen=True)
class RecipeFile:
    """A recipe beside ``paper.toml``.

    Attributes:
        file: Its name.
        set: Changes for all of its methods, as ``--set`` takes them: two recipes may share a file.
        on: Changes by dataset.
    """

    file: str
    set: Sequence[str] = ()
    on: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Dataset:
    """A dataset of the paper; its key is its name in veilrec, unless it says another.

    Attributes:
        label: As the paper writes it.
        name: Its name in veilrec: two keys may be two forms of the same data.
        set: Changes for every method.
        attributes: Those that it has; by default all that tables show.
        seconds: Of the processor for a run, as somebody has measured it, by method; for all others under
            ``default``.
    """

    label: str
    name: str = ""
    set: Sequence[str] = ()
    attributes: Sequence[str] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def has(self, attribute: str) -> bool:
        """Whether the dataset knows an attribute of its users."""
        return not self.attributes or attribute in self.attributes


@dataclass(frozen=True)
class Method:
    """A row of a table: a recipe with changes.

    Attributes:
        label: What it is called here.
        recipe: The key of its recipe.
        set: Changes, as ``--set`` takes them.
        on: Further changes by dataset.
        reported: Columns of ``reported.csv`` by which it is found there; by default ``method = label``.
        against: Another method, whose cost is 1 where costs are shown.
        trained: Another method whose trained model it begins with: but for erasers and attacks the two are
            the same, so that nothing is trained again.
        note: What a reader must know about it.
    """

    label: str
    recipe: str
    set: Sequence[str] = ()
    on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reported: Mapping[str, str] = field(default_factory=dict)
    against: str = ""
    trained: str = ""
    note: str = ""


@dataclass(frozen=True)
class Named:
    """An attribute, an audit, an attacker, a part or a score: what it is called, and found by.

    Attributes:
        label: In tables.
        reported: Columns of ``reported.csv``.
        score: Of an attribute, what the paper judges the attack on it by; by default the paper's score.
    """

    label: str
    reported: Mapping[str, str] = field(default_factory=dict)
    score: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about two numbers, to be checked on ours.

    Attributes:
        less, more, alike: A method: which of the three is said of it.
        than: Another method, ``floor`` (the best blind guess) or ``popularity``.
        by: A score of the attack, or a metric of usefulness; by default the score of the attribute.
        attribute, audit, attacker: Of the attack; by default the first audit and first attacker of the table.
        part, than_part: A part of the upload, attacked alone, on either side.
        than_audit, than_attacker: The audit and the attacker of the other side; by default the same.
        datasets: Where it can be checked; by default wherever the table is.
    """

    than: str
    less: str = ""
    more: str = ""
    alike: str = ""
    by: str = ""
    attribute: str = ""
    audit: str = ""
    attacker: str = ""
    part: str = ""
    than_part: str = ""
    than_audit: str = ""
    than_attacker: str = ""
    datasets: Sequence[str] = ()

    @property
    def who(self) -> str:
        """The method that the claim is about."""
        return self.less or self.more or self.alike

    @property
    def word(self) -> str:
        """``less``, ``more`` or ``alike``."""
        return "less" if self.less else "more" if self.more else "alike"


@dataclass(frozen=True)
class Table:
    """A table or figure: methods × what is shown of them.

    Attributes:
        title: What it shows.
        methods: Its rows.
        extra: Rows of ours that the paper does not have.
        datasets: Those that the paper shows.
        attributes, audits, attackers, parts: Columns of the attack: one for each audit, and in it for each
            attacker of the whole upload and each part attacked alone.
        scores: What attacks are shown by, a sheet each; by default the score of the attribute.
        utility: Whether usefulness is what the paper shows here; then it stands first.
        metrics_beside: Of usefulness, beside the paper's; by default the paper's own.
        cost: Whether seconds and bytes a round are shown.
        curves: What is shown round by round: metrics in validation, or attacks (`Threat.along`).
        facts: What else is shown of a run: ``users``, ``items``, ``ratings``, ``density``, or the ``seconds``
            that erasers took; of a table of facts alone, neither usefulness nor attacks are shown.
        drawn: By dataset, the attribute by which users are coloured in a picture of their vectors.
        reported: Tables of ``reported.csv`` in which its numbers stand; by default its own.
        claims: What the paper says about it.
        notes: What a reader must know.
    """

    title: str
    methods: Sequence[str]
    extra: Sequence[str] = ()
    datasets: Sequence[str] = ()
    attributes: Sequence[str] = ()
    audits: Sequence[str] = ()
    attackers: Sequence[str] = ()
    parts: Sequence[str] = ()
    scores: Sequence[str] = ()
    utility: bool = False
    metrics_beside: Sequence[str] = ()
    cost: bool = False
    curves: Sequence[str] = ()
    facts: Sequence[str] = ()
    drawn: Mapping[str, str] = field(default_factory=dict)
    reported: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[str]:
        """The methods of the paper, then ours."""
        return [*self.methods, *self.extra]

    def on(self, dataset: str) -> bool:
        """Whether the paper shows the table on a dataset."""
        return not self.datasets or dataset in self.datasets


@dataclass(frozen=True)
class Contents:
    """The contents of ``paper.toml``; methods and claims refer to the keys of its tables.

    Attributes:
        title, reference: Of the paper.
        metric, metrics_beside: Of usefulness, as in ``hr@20``: the paper's, and those shown with it.
        score, beside: Of the attack: the paper's, and those shown with it; an attribute may have its own.
        recipes, datasets, methods, tables: What is run and shown.
        attributes, audits, attackers, parts: By the names that results give them.
        reported: Columns of ``reported.csv`` by metric or score.
        notes: What holds for all tables.
    """

    title: str
    reference: str
    metric: str
    recipes: Mapping[str, RecipeFile]
    datasets: Mapping[str, Dataset]
    methods: Mapping[str, Method]
    tables: Mapping[str, Table]
    score: str = "macro_f1"
    beside: Sequence[str] = ()
    metrics_beside: Sequence[str] = ()
    attributes: Mapping[str, Named] = field(default_factory=dict)
    audits: Mapping[str, Named] = field(default_factory=dict)
    attackers: Mapping[str, Named] = field(default_factory=dict)
    parts: Mapping[str, Named] = field(default_factory=dict)
    reported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def metrics(self) -> list[str]:
        """Metrics of usefulness: the paper's first, then those beside it."""
        return [self.metric, *self.metrics_beside]

    def metrics_of(self, table: Table) -> list[str]:
        """Metrics of usefulness that a table shows."""
        return [self.metric, *(table.metrics_beside or self.metrics_beside)]

    def score_of(self, attribute: str) -> str:
        """The score by which the paper judges an attack on an attribute."""
        named = self.attributes.get(attribute)
        return (named.score if named else "") or self.score

    def scores_of(self, table: Table, attribute: str) -> list[str]:
        """The scores by which a table shows an attack on an attribute; claims go by the first."""
        return list(table.scores) or [self.score_of(attribute)]
