"""Soundness: what in an audit's own input would make its numbers mean something else than they seem to."""
