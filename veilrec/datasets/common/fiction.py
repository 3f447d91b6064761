"""Titles of films that nobody made: readable, different from each other, the same for the same keys."""

from __future__ import annotations

from torch import Tensor

from veilrec.base.keys import Keys

__all__: list[str] = []

THEMES = (  # what the films of each kind are about
    ("Harbour", "Tide", "Lighthouse", "Captain", "Island", "Storm", "Anchor", "Voyage", "Reef", "Ferry"),
    ("Orbit", "Signal", "Comet", "Machine", "Colony", "Engine", "Planet", "Circuit", "Eclipse", "Capsule"),
    ("Letter", "Wedding", "Summer", "Kiss", "Promise", "Dance", "Stranger", "Garden", "Winter", "Bride"),
    (
        *("Alibi", "Witness", "Verdict", "Detective", "Ransom", "Motive", "Fingerprint", "Suspect"),
        *("Vault", "Hour"),
    ),
    ("Uncle", "Holiday", "Neighbour", "Parade", "Wig", "Picnic", "Butler", "Goose", "Mayor", "Mishap"),
    ("Cellar", "Raven", "Mirror", "Whisper", "Attic", "Scarecrow", "Doll", "Fog", "Crypt", "Candle"),
    ("Saddle", "Canyon", "Sheriff", "Railway", "Outlaw", "Prairie", "Duel", "Mustang", "River", "Dust"),
    ("Dragon", "Crown", "Wizard", "Forest", "Sword", "Throne", "Kingdom", "Spell", "Giant", "Oath"),
)
MOODS = (
    *("Silent", "Crimson", "Last", "Hidden", "Golden", "Broken", "Distant", "Second", "Secret", "Wild"),
    *("Quiet", "Burning", "Lost", "Midnight", "Paper", "Northern", "Hollow", "Velvet", "Seventh"),
    "Borrowed",
)
PATTERNS = ("The {0}", "A {0}", "{0}", "Return of the {0}", "Beyond the {0}", "My {0}")
FIRST_YEAR, YEARS = 1951, 72
NUMERALS = ("", " II", " III", " IV", " V")


def titles(keys: Keys, kind: Tensor) -> list[str]:
    """One title per item; ``kind [items]`` chooses what it is about."""
    names = [_names(keys.fold("names").fold(theme), theme) for theme in range(len(THEMES))]
    years = (keys.fold("years").integers(YEARS, len(kind)) + FIRST_YEAR).tolist()
    used = [0] * len(THEMES)
    found = []
    for number, year in zip((kind % len(THEMES)).tolist(), years, strict=True):
        part, place = divmod(used[number], len(names[number]))
        used[number] += 1
        numeral = NUMERALS[part] if part < len(NUMERALS) else f" {part + 1}"
        found.append(f"{names[number][place]}{numeral} ({year})")
    return found


def _names(keys: Keys, theme: int) -> list[str]:
    """Every title of a theme, in a random order."""
    every = [
        pattern.format(f"{mood} {noun}") for pattern in PATTERNS for mood in MOODS for noun in THEMES[theme]
    ]
    return [every[place] for place in keys.order(len(every)).tolist()]
