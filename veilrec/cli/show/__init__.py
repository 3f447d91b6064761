"""Views: what the commands print, as a person reads it."""
