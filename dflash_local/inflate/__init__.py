"""Small trained pairs made as large as real ones, for benchmarks."""
