"""What runs on a device with its own memory: Mesa's software Vulkan, which every machine with a CPU has."""
