"""Replicas of the server on Ray Serve: a gateway reads a request, and its conversation decides who answers."""
