"""Originals: anyone's files of vectors, held so that some rows can be changed and all else stays as it is."""
