"""The devices of one run in several processes: what they say to each other, and who asks and who answers."""
