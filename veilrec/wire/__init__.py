"""The wire: messages as bytes, what the server sees of a round, the record of it, and its size."""
