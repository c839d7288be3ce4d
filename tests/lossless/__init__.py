"""Drafted decoding changes nothing but the time: same tokens, same text for a seed, same distribution
(docs/proof.md)."""
