"""Groups of flags, and what they describe: an engine, the settings of a server, the log."""
