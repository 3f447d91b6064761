"""Protocols: the messages that cross the wire and the server's use of them, one file each."""
