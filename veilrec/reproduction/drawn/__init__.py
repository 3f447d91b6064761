"""Pictures of what runs hold."""
