"""``veilrec`` and ``python -m veilrec``: the command line, which hears signals before it imports anything."""

from __future__ import annotations

from veilrec.base import process

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and end the process."""
    process.launch(_command)


def _command() -> int:
    from veilrec.cli import main as command

    return command()


if __name__ == "__main__":
    main()
