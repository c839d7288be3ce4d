"""Processes that the server starts: one for each embedding model, and of a router one for each model."""
