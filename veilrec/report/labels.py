"""Labels at marks: short ones, each where it hides least."""

from __future__ import annotations

from collections.abc import Sequence

from veilrec.metrics.arms import Arm

__all__ = ["place_labels", "short_labels"]

Box = tuple[float, float, float, float]  # left, bottom, right, top

WIDTH, HEIGHT = 640.0, 380.0  # pixels of the plot on a usual screen, for laying out labels
LETTER, LINE = 7.0, 17.0
TOUCH = 40.0  # square pixels that a label may hide
CORNERS = ("top right", "bottom right", "top left", "bottom left")


def short_labels(arms: Sequence[Arm]) -> list[str]:
    """Labels at the marks: of several defences of one name their settings alone, else whole labels."""
    defended = [arm.label for arm in arms if arm.defended]
    names = {label.partition(" (")[0] for label in defended}
    if len(defended) < 2 or len(names) > 1 or not all(label.endswith(")") for label in defended):
        return [arm.label for arm in arms]
    return [arm.label.partition(" (")[2][:-1] if arm.defended else arm.label for arm in arms]


def place_labels(places: Sequence[tuple[float, float]], lengths: Sequence[int]) -> list[str]:
    """The corner for the label of each point (0 to 1 both ways) where it hides least; none where all do.

    The first is served first.
    """
    taken = [(x * WIDTH - 6, y * HEIGHT - 6, x * WIDTH + 6, y * HEIGHT + 6) for x, y in places]
    chosen = []
    for (x, y), letters in zip(places, lengths, strict=True):
        boxes = {corner: _box(x * WIDTH, y * HEIGHT, letters * LETTER, corner) for corner in CORNERS}
        corner = min(CORNERS, key=lambda name: _hidden(boxes[name], taken))
        clear = _hidden(boxes[corner], taken) <= TOUCH
        taken += [boxes[corner]] if clear else []
        chosen.append(corner if clear else "")
    return chosen


def _box(x: float, y: float, width: float, corner: str) -> Box:
    """The box of a label at a corner of its point."""
    left = x + 8 if "right" in corner else x - 8 - width
    bottom = y + 4 if "top" in corner else y - 4 - LINE
    return left, bottom, left + width, bottom + LINE


def _hidden(box: Box, taken: Sequence[Box]) -> float:
    """The area of other boxes that a box would hide, and of itself that the edge would cut off."""
    left, bottom, right, top = box
    over = sum(
        max(0.0, min(right, r) - max(left, lo)) * max(0.0, min(top, t) - max(bottom, b))
        for lo, b, r, t in taken
    )
    lost = max(0.0, -left) + max(0.0, right - WIDTH) + max(0.0, -bottom) + max(0.0, top - HEIGHT)
    return over + LINE * lost
