"""Drafts in the terminal: `dflash-local chat --show drafts`.

A pass is the dict `pass` of an event's `dflash`, as the server sends it (docs/serving.md).
"""
