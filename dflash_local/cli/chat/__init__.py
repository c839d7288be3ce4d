"""`dflash-local chat`: the conversation in a terminal, and what answers it: an engine of its own, or a server."""
