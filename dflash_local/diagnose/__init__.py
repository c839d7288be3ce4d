"""Findings of `doctor`: is everything there, do a target and a drafter fit, and what slows them down here?"""
