"""Soundness: whether an audit can be believed, by its own input, by shuffled labels, and by controls."""
