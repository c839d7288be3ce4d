"""Damaged requests to all endpoints of a live server."""
