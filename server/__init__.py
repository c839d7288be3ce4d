"""The OpenAI endpoint: an app over `dflash_local.Engine`. No model code; `dflash-local serve` starts it.

This folder is installed, and imported, as `dflash_local.server`.
"""
