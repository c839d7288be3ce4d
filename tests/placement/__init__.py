"""Targets and drafters on several devices: RPC servers on loopback, each with memory of its own (docs/placement.md)."""
