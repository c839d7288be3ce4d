"""What answers look like, as pydantic models for the docs; no answer is made or checked by them while serving."""
