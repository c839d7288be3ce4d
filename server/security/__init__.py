"""Who may ask, from where, and how much at once: middleware of the app, and the server's connections."""
