"""What a user wants to know before and besides an answer: does the pair fit, what is this machine, what do passes
cost."""
