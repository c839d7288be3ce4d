"""Models by name: downloads from the Hugging Face Hub into llama.cpp's cache, and the drafter of a target
(docs/models.md)."""
