"""Drafts in the terminal: `dflash-local chat --show drafts`.

What a pass did comes as the server tells it, as the `pass` of an event's `dflash` (docs/serving.md): a dict.
"""
