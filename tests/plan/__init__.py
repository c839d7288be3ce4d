"""What a plan says, against what is then allocated (docs/plan.md)."""
