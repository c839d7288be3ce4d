"""The native build: the pinned source, our patches and ggml_ops, one cached wheel."""
