"""Mutants: one-line changes of the core, each of which some fast test must notice."""
