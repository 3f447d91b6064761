"""What a run needs before it starts: memory by phase, and room on the disk."""
