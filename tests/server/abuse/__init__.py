"""Clients that do to a live server all that clients do, sound or not, all at once (tests/server/test_hour.py)."""
