"""Builders of answers: a module for each owner's format."""
