"""What goes out, as types: each answer and each event of a stream once, as a TypedDict.

For example `chat.py`: a chat completion, and the events of a streamed one. `server/formats/` builds them, mypy checks
that, and the OpenAPI document and the page's types are made of them.
"""
