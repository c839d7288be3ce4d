"""The HTTP routes, a module for each group; each has add_routes(app, service)."""
