"""What builds the shapes of `server/shapes/`: a module for each owner's format, and for what several of them share.

For example `chat.py`: ChatReply, which builds OpenAI's chat completion, whole or event by event. Every answer that is
generated has such a Reply (`reply.py`); `server/response.py` sends it.
"""
