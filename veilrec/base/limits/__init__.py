"""What a number may be, and what a machine has room for."""
