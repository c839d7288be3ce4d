"""Memory plans: what an engine will take on each device, and the flags that make a model fit (docs/plan.md)."""
