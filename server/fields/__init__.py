"""What comes in: request bodies, read, checked and turned into parameters of the engine."""
