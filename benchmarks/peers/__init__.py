"""The same round with other people's federated learning frameworks, each in an environment of its own."""
