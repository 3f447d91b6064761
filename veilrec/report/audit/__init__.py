"""Audits of vectors: a page for whoever decides, and an audit in one call from Python."""
