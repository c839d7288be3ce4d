"""What goes where before it is loaded: memory by device, and the flags that make a model fit (docs/plan.md)."""
