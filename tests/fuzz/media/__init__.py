"""Broken, odd and sound media in requests to a live server."""
