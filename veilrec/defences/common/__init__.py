"""What several defences share."""
