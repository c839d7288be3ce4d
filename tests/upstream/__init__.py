"""llama-server's own tests, against llama-server and against ours: `python -m tests.upstream --help`."""
