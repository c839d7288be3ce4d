"""Request bodies: read, checked and turned into parameters of the engine."""
