"""Facts about this machine and what was measured on it: pass times, crossovers of kernels, devices, builds."""
