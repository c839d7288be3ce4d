#!/bin/sh
# Builds the tools for compiling the Vulkan backend from source into /usr/local: headers, the loader, and glslc. The
# packages of manylinux_2_28 are too old. Each source is checked against its commit; shaderc pins its own dependencies.
set -eu
python=/opt/python/cp311-cp311/bin/python
work=$(mktemp -d)
cd "$work"

fetch() { # OWNER/NAME TAG COMMIT
    git clone -q --depth 1 --branch "$2" "https://github.com/$1" "$work/${1#*/}"
    found=$(git -C "$work/${1#*/}" rev-parse HEAD)
    if [ "$found" != "$3" ]; then
        echo "error: $2 of $1 is $found, not $3" >&2
        exit 1
    fi
}

install() { # NAME CMAKE_ARGUMENT...
    name=$1
    shift
    cmake -S "$name" -B "build-$name" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local "$@"
    cmake --build "build-$name" --parallel "$(nproc)"
    cmake --install "build-$name"
}

sdk=vulkan-sdk-1.4.357.0
fetch KhronosGroup/Vulkan-Headers $sdk e3b1eec08173d6b825cd3ac88c885a63b621504a
fetch KhronosGroup/SPIRV-Headers $sdk 29981f65241605e08b0ede4cfeb999fe3b723c6a
fetch KhronosGroup/Vulkan-Loader $sdk 5f157b62e333c63260d05d81bf66faa216ab0fb8
fetch google/shaderc v2026.3 2c8cae778eec0283b44acbe7ed1a386865d78799
"$python" shaderc/utils/git-sync-deps

install Vulkan-Headers
install SPIRV-Headers
# Nothing is shown on a screen, so no window system is needed.
install Vulkan-Loader -DBUILD_WSI_XCB_SUPPORT=OFF -DBUILD_WSI_XLIB_SUPPORT=OFF -DBUILD_WSI_XLIB_XRANDR_SUPPORT=OFF \
    -DBUILD_WSI_WAYLAND_SUPPORT=OFF
# Only shaderc's compiler: its libraries would take as long again.
cmake -S shaderc -B build-shaderc -DCMAKE_BUILD_TYPE=Release -DSHADERC_SKIP_TESTS=ON -DSHADERC_SKIP_EXAMPLES=ON \
    -DSHADERC_SKIP_COPYRIGHT_CHECK=ON -DSHADERC_ENABLE_WERROR_COMPILE=OFF \
    -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python"
cmake --build build-shaderc --parallel "$(nproc)" --target glslc_exe
cp build-shaderc/glslc/glslc /usr/local/bin/

ldconfig
cd /
rm -rf "$work"
