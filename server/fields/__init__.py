"""What comes in: bodies of requests, and what becomes of each name in them.

For example `chat.py`: ChatRequest, the body of a chat completion. A body is read and checked as such a class
(`fields.py`), and turned into parameters of the engine (`request.py`).
"""
