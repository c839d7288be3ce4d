"""`make gpu-proof`: tests and measurements of a GPU, on a machine that has one (docs/gpu.md).

`python -m benchmarks.gpu_proof` needs Python, this checkout and a bundle (`dflash-local build --out DIR`), but no
compiler, network or installed package. Until the bundle is unpacked, it uses only Python's standard library.
"""
