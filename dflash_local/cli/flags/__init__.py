"""Groups of flags, and what they describe: an engine, the server's app and settings, the log."""
