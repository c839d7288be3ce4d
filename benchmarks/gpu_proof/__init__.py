"""`make gpu-proof`: what a GPU is, proven on the machine that has it (docs/gpu.md).

`python -m benchmarks.gpu_proof` needs Python, this checkout and a bundle (`dflash-local build --out DIR`); no compiler,
no network, nothing installed. It runs on Python's own library alone until the bundle is unpacked.
"""
