"""Programs that `launch` starts: what each needs, and the server that it uses."""
