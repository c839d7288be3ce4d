"""Embeddings and scores of texts: llama.cpp's embedding code, through llama-cpp-python, in a process of its own."""
