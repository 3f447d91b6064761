"""What a number, and any value from a file, may be; and what a machine has room for."""
