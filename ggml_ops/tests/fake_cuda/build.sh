#!/bin/sh
# build.sh FOLDER: makes FOLDER/libcudart.so.N and FOLDER/libcublas.so.N, where N is the toolkit's major version. Needs
# a C++ compiler and the toolkit's headers ($CUDA_HOME, or /usr/local/cuda).
set -e
here=$(dirname "$0")
headers=${CUDA_HOME:-/usr/local/cuda}/include
major=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\)...$/\1/p' "$headers/cuda_runtime_api.h")
mkdir -p "$1"
for name in cudart cublas; do
    library=lib$name.so.$major
    symbols='cuda*; __cuda*;'
    source=fake_cuda.cpp
    if [ $name = cublas ]; then
        symbols='cublas*;'
        source="fake_cublas.cpp $1/libcudart.so.$major"
    fi
    echo "$library { global: $symbols local: *; };" > "$1/$name.map"
    (cd "$here" && ${CXX:-c++} -std=c++17 -O1 -g -shared -fPIC -Wall -Wextra -I"$headers" $source -o "$1/$library" \
        -Wl,-soname,"$library" -Wl,--version-script="$1/$name.map")
done
