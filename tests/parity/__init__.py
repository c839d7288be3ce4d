"""Parity with the authors' PyTorch implementation of DFlash (docs/proof.md)."""
