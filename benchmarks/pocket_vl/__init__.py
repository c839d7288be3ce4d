"""The pocket-VL: a small target that sees drawn scenes, its projector and its drafter, and how they are made."""
