"""Processes that the server starts: one per embedding model, and in a router one per model."""
