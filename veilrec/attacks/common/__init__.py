"""What several attacks share."""
