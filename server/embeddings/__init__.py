"""Embeddings and scores of texts, by a model of its own in a process of its own: llama.cpp's embedding code, through
llama-cpp-python."""
