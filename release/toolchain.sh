#!/bin/sh
# What `make wheel` needs on a machine of the release workflow. usage: toolchain.sh NAME (of the matrix)
set -eu
case "$1" in
linux-*)
    apt-get update -q
    apt-get install -qy --no-install-recommends g++ make git ca-certificates python3-venv python3-dev
    ;;
esac
case "$1" in
linux-x86_64-vulkan) apt-get install -qy --no-install-recommends glslc libvulkan-dev spirv-headers ;;
linux-x86_64 | linux-aarch64 | linux-x86_64-cuda12) ;;
macos-* | windows-*) ;; # the runners have what is needed
*)
    echo "error: no machine is called $1" >&2
    exit 1
    ;;
esac
