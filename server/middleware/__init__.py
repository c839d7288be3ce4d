"""Middleware that is about neither access nor limits: the log, failures, the path's prefix, files, HEAD."""
