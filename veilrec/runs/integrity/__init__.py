"""What vouches for a finished run: its manifest, changes that it commits, a memory of what was checked."""
