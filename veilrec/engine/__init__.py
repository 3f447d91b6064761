"""The engine: what devices do in a round, where they are, what they keep, and how they are judged."""
