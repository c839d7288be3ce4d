"""Facts about this machine, the build and a pair: is everything there, do the two fit, what do their passes cost?"""
