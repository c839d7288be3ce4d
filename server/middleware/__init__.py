"""Middleware that is about neither access nor limits: the log, failures, the root path, files, HEAD."""
