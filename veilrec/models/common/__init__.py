"""What several models share."""
