"""What several datasets share."""
