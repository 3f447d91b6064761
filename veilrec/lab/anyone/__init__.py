"""Anyone's vectors: files and live arrays, joined with what is known of their users, and attacked."""
