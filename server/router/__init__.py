"""The router: several models behind one endpoint, each in a process of its own, loaded on demand and evicted."""
