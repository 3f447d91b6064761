"""Requests to make a model forget an attribute: taken, carried out once, and told in a receipt."""
