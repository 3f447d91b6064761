"""The lab: attacks on what the server saw, and what their scores prove."""
