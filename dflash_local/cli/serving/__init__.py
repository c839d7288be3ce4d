"""Servers as the flags of `serve` describe them: one model, several replicas, or a router of models."""
