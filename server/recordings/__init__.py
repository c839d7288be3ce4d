"""Recorded streams, for clients that lost their connection."""
