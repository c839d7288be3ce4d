"""The OpenAI endpoint: a FastAPI app over `dflash_local.Engine`. No model code; `dflash-local serve` starts it."""
