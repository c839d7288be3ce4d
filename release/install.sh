#!/bin/sh
# Installs dflash-local for the user who runs it, without root, into ~/.local. What it does: docs/installing.md.
#
#   sh install.sh --help
#
# A release's own copy knows where the wheels of that release are. Nothing runs before the last line has been read, so
# that half a download does nothing.
set -eu

RELEASE_WHEELS="" # `make installers` writes the address of the release here

usage() {
    cat <<'END'
usage: install.sh [OPTION...]    (through a pipe: curl ... | sh -s -- OPTION...)

  --wheels DIR|URL   folder with ready wheels; a URL must offer a SHA256SUMS beside them   ($DFLASH_WHEELS)
  --from-source      take no wheels: pip's package, and llama.cpp compiled here
  --version X.Y.Z    default: the newest                                                   ($DFLASH_VERSION)
  --backend NAME     auto, cpu, cuda, vulkan, metal; hip with --from-source. Default: auto ($DFLASH_BACKEND)
  --prefix DIR       default: ~/.local                                                     ($DFLASH_PREFIX)
  --python PROGRAM   Python 3.10 or newer. Default: the first that is found                ($DFLASH_PYTHON)
  --installer NAME   uv or pip. Default: uv if it is on PATH
  --offline          without network; the folder of --wheels has all packages
  --dry-run          only say what would be done
  --uninstall        remove what this script installed
END
}

say() { printf '%s\n' "$*"; }

fail() { # SENTENCE FIX
    printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

main() {
    read_arguments "$@"
    find_places
    if [ "$action" = uninstall ]; then
        uninstall
        return
    fi
    check_system
    check_command
    find_backends
    find_installer
    work=$(mktemp -d "${TMPDIR:-/tmp}/dflash-local.XXXXXX")
    log=$work/log
    environment=
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' HUP TERM
    if [ -n "$wheels" ]; then
        choose_wheel
    fi
    say_plan
    if [ -z "$dry_run" ]; then
        install
    fi
}

read_arguments() {
    wheels=${DFLASH_WHEELS:-$RELEASE_WHEELS}
    version=${DFLASH_VERSION:-}
    backend=${DFLASH_BACKEND:-auto}
    prefix=${DFLASH_PREFIX:-}
    python=${DFLASH_PYTHON:-}
    installer=
    offline=
    action=install
    dry_run=
    while [ $# -gt 0 ]; do
        case $1 in
            --wheels | --version | --backend | --prefix | --python | --installer)
                [ -n "${2:-}" ] || fail "$1 needs a value" "see --help"
                case $1 in
                    --wheels) wheels=$2 ;;
                    --version) version=$2 ;;
                    --backend) backend=$2 ;;
                    --prefix) prefix=$2 ;;
                    --python) python=$2 ;;
                    --installer) installer=$2 ;;
                esac
                shift
                ;;
            --from-source) wheels= ;;
            --offline) offline=yes ;;
            --dry-run) dry_run=yes ;;
            --uninstall) action=uninstall ;;
            --help | -h)
                usage
                exit 0
                ;;
            *) fail "unknown option $1" "see --help" ;;
        esac
        shift
    done
    check_arguments
}

check_arguments() {
    case $backend in
        auto | cpu | cuda | vulkan | metal | hip) ;;
        *) fail "--backend '$backend' is no backend" "use auto, cpu, cuda, vulkan, metal or hip" ;;
    esac
    case $installer in
        "" | uv | pip) ;;
        *) fail "--installer '$installer' is no installer" "use uv or pip" ;;
    esac
    case $version in
        *[!0-9.]*) fail "--version '$version' is no version" "use numbers such as 0.2.0" ;;
    esac
    case $wheels in
        "" | *://*)
            [ -z "$offline" ] || fail "--offline needs a folder of wheels" "add --wheels DIR"
            wheels=${wheels%/}
            ;;
        *)
            [ -d "$wheels" ] || fail "--wheels '$wheels' is no folder" "name the folder that holds the wheels, or a URL"
            wheels=$(cd "$wheels" && pwd)
            ;;
    esac
}

# Sets `home`, where everything is, and `link`, the command.
find_places() {
    if [ -z "$prefix" ]; then
        [ -n "${HOME:-}" ] || fail "HOME is not set" "set it, or choose a folder by --prefix"
        prefix=$HOME/.local
    fi
    case $prefix in
        /*) ;;
        *) prefix=$PWD/$prefix ;;
    esac
    prefix=${prefix%/}
    home=$prefix/share/dflash-local
    link=$prefix/bin/dflash-local
}

# Whether `link` leads into `home`, by whatever name that had then, and even if the environment is gone.
is_ours() {
    target=$(readlink "$link" 2>/dev/null) || return 1
    case $target in
        "$home"/*) return 0 ;;
    esac
    target=$(cd "${target%/*}" 2>/dev/null && pwd -P) || return 1
    real_home=$(cd "$home" 2>/dev/null && pwd -P) || return 1
    case $target in
        "$real_home"/*) return 0 ;;
        *) return 1 ;;
    esac
}

uninstall() {
    if [ ! -f "$home/made-by-install.sh" ]; then
        fail "nothing that this script installed is in $home" "name the --prefix of the installation"
    fi
    removed=$home
    if is_ours; then
        removed="$home and $link"
    fi
    if [ -n "$dry_run" ]; then
        say "would remove $removed"
        return
    fi
    if is_ours; then
        rm "$link"
    fi
    rm -rf "$home"
    say "removed $removed"
    say "kept: ${DFLASH_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/dflash-local} (builds, measured times) and models"
}

check_command() {
    if { [ -e "$link" ] || [ -L "$link" ]; } && ! is_ours; then
        fail "$link is there and not from this script" \
            "remove it (pipx or uv tool uninstall dflash-local), or use --prefix"
    fi
    if [ -e "$home" ] && [ ! -f "$home/made-by-install.sh" ]; then
        fail "$home is there and not from this script" "move it away, or use --prefix"
    fi
}

# Sets `system` (linux, macos), `machine`, and the version of its C library or of macOS in `major` and `minor`.
check_system() {
    case $(uname -s) in
        Linux) system=linux ;;
        Darwin) system=macos ;;
        MINGW* | MSYS* | CYGWIN*) fail "this script is for Linux and macOS" "run install.ps1 in PowerShell" ;;
        *) fail "$(uname -s) is not supported" "use Linux, macOS or Windows" ;;
    esac
    machine=$(uname -m)
    case $machine in
        amd64) machine=x86_64 ;;
        arm64) [ $system = macos ] || machine=aarch64 ;;
    esac
    if [ $system = macos ]; then
        number=$(sw_vers -productVersion)
    else
        number=$(glibc_version)
    fi
    if [ -z "$number" ]; then
        fail "this Linux has musl or another C library than glibc" \
            "use a distribution with glibc, or the container image (docs/building.md)"
    fi
    major=${number%%.*}
    minor=${number#*.}.0
    minor=${minor%%.*}
}

# Empty without glibc.
glibc_version() {
    # `getconf` knows it where there is glibc; some systems have no `getconf`.
    found=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
    case $found in
        "glibc "*) printf '%s\n' "${found#glibc }" ;;
        *) ldd --version 2>/dev/null | sed -n '1s/.*[^0-9.]\(2\.[0-9][0-9]*\)$/\1/p' ;;
    esac
}

# Sets `backends`, the best first: a GPU's, if a wheel for it finds its device and libraries here. `reason` says why.
find_backends() {
    backends=$backend
    reason="as you asked"
    if [ "$backend" != auto ]; then
        return
    fi
    backends=cpu
    reason="no GPU was found that a wheel would serve"
    if [ $system = macos ]; then
        backends="metal cpu"
        reason="this is macOS"
        return
    fi
    if exists /dev/dri/renderD*; then
        if has_library libvulkan.so.1; then
            backends="vulkan cpu"
            reason="a GPU and the Vulkan loader were found"
        else
            reason="a GPU was found, but not the Vulkan loader (libvulkan.so.1)"
        fi
    fi
    if exists /dev/nvidia[0-9]* /dev/dxg; then
        find_cuda
    fi
}

exists() {
    for file in "$@"; do
        if [ -e "$file" ]; then
            return 0
        fi
    done
    return 1
}

# The wheel brings neither the driver nor CUDA's libraries, and has code for compute capability 7.5 and up.
find_cuda() {
    for library in libcuda.so.1 libcudart.so.12 libcublas.so.12; do
        if ! has_library $library; then
            reason="an NVIDIA GPU was found, but not $library of CUDA 12"
            return
        fi
    done
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -n | head -n 1)
    case $capability in
        [1-6].* | 7.[0-4])
            reason="an NVIDIA GPU was found, but its compute capability is $capability, and the wheel needs 7.5"
            return
            ;;
    esac
    backends="cuda $backends"
    reason="an NVIDIA GPU and CUDA 12's libraries were found"
}

has_library() {
    if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "[[:space:]]$1 "; then
        return 0
    fi
    (
        IFS=:
        for folder in ${LD_LIBRARY_PATH:-}; do
            if [ -e "$folder/$1" ]; then
                exit 0
            fi
        done
        exit 1
    )
}

# Sets `installer`, and `python` unless uv chooses it. Python runs with -I everywhere: a folder `dflash_local` in the
# current one, as in a checkout, is not the one that is installed.
find_installer() {
    if [ -z "$installer" ]; then
        installer=pip
        if has uv; then
            installer=uv
        fi
    fi
    if [ "$installer" = uv ]; then
        has uv || fail "uv is not on PATH" "install it, or use --installer pip"
        return
    fi
    if [ -n "$python" ]; then
        is_new "$python" || fail "--python $python is not Python 3.10 or newer (64 bits)" "name another"
    else
        for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
            if is_new $name; then
                python=$name
                break
            fi
        done
    fi
    if [ -z "$python" ]; then
        fail "there is no Python 3.10 or newer (64 bits)" "$(advice_for python3)"
    fi
    "$python" -I -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module" "$(advice_for python3-venv)"
}

is_new() {
    # On a Mac without Apple's tools, this file only opens a window that offers them.
    if [ "$(command -v "$1" 2>/dev/null)" = /usr/bin/python3 ] && [ $system = macos ]; then
        xcode-select -p >/dev/null 2>&1 || return 1
    fi
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 10) or sys.maxsize < 2**32)' >/dev/null 2>&1
}

advice_for() { # PACKAGE: python3 or python3-venv
    if has apt-get; then
        if [ "$1" = python3-venv ]; then
            say "sudo apt-get install python3-venv, or install uv, which brings its own Python"
        else
            say "sudo apt-get install python3 python3-venv, or install uv, which brings its own Python"
        fi
    elif has dnf; then
        say "sudo dnf install python3.12, or install uv, which brings its own Python"
    elif has brew; then
        say "brew install python, or install uv, which brings its own Python"
    else
        say "install Python with its venv module, or uv, which brings its own Python"
    fi
}

# Sets `wheel`, the name of dflash-local's own, and the `backend`.
choose_wheel() {
    list_wheels
    for backend in $backends; do
        # Fields: version, name. The last is the newest.
        wheel=$(own_wheels "$backend" | sort -t. -k1,1n -k2,2n -k3,3n | sed -n '$s/^[^ ]* //p')
        if [ -n "$wheel" ]; then
            first=${backends%% *}
            [ "$backend" = "$first" ] || reason="$reason, but no wheel for $first is there"
            return
        fi
    done
    there=$(sed -n 's/^dflash_local-\(.*\)-py3-none-\(.*\)\.whl$/\1 for \2/p' "$work/names" | tr '\n' ',')
    fail "$wheels has no wheel of dflash-local${version:+ $version} for $backends on $system $machine ($number)" \
        "choose what is there (${there:-nothing}) by --backend and --version, or compile: --from-source"
}

# Writes the names of all wheels into $work/names.
list_wheels() {
    case $wheels in
        *://*)
            fetch SHA256SUMS "$work" || fail "$wheels/SHA256SUMS cannot be fetched ($(last_words))" \
                "check the network and the address, or name a folder by --wheels"
            ;;
        *)
            if [ -f "$wheels/SHA256SUMS" ]; then
                cp "$wheels/SHA256SUMS" "$work"
            fi
            ;;
    esac
    case $wheels in
        *://*) sed -n 's/^[0-9a-f]\{64\} [ *]\([^/]*\.whl\)$/\1/p' "$work/SHA256SUMS" >"$work/names" ;;
        *) (cd "$wheels" && ls) | sed -n '/\.whl$/p' >"$work/names" ;;
    esac
}

own_wheels() { # BACKEND
    while read -r name; do
        case $name in
            dflash_local-${version:-*}+"$1"-py3-none-*)
                if fits "$name"; then
                    number_of=${name#dflash_local-}
                    say "${number_of%%+*} $name"
                fi
                ;;
        esac
    done <"$work/names"
}

# Whether a wheel runs here, by the platforms in its name.
fits() { # NAME
    platforms=${1##*-}
    for platform in $(printf '%s\n' "${platforms%.whl}" | tr . ' '); do
        case $system/$platform in
            linux/linux_"$machine" | linux/manylinux1_"$machine" | linux/manylinux2010_"$machine") return 0 ;;
            linux/manylinux2014_"$machine") is_at_least 2 17 && return 0 ;;
            linux/manylinux_*_"$machine" | macos/macosx_*_"$machine" | macos/macosx_*_universal2)
                least=${platform#*_}
                least_minor=${least#*_}
                is_at_least "${least%%_*}" "${least_minor%%_*}" && return 0
                ;;
        esac
    done
    return 1
}

is_at_least() { # MAJOR MINOR
    [ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -ge "$2" ]; }
}

say_plan() {
    if [ -n "$wheels" ]; then
        say "backend    $backend: $reason"
        say "wheel      $wheel"
        say "from       $wheels"
    else
        [ -n "$dry_run" ] || check_compiler
        say "backend    $backend, compiled here, which takes minutes (no wheels are named: --wheels)"
        say "from       the package index of $installer"
    fi
    if [ -n "$wheels" ] && [ "$machine" = x86_64 ] && [ -r /proc/cpuinfo ] && ! grep -qw avx2 /proc/cpuinfo; then
        say "note       this processor has no AVX2: fewer of our kernels serve, and drafted text may differ in its bits"
    fi
    say "into       $home, by $installer${python:+ and $python}"
    say "command    $link"
}

check_compiler() {
    if ! has "${CXX:-c++}" && ! has g++ && ! has clang++; then
        fail "there are no wheels to install and no C++ compiler to make them" \
            "name ready wheels by --wheels, or install a compiler (Debian, Ubuntu: sudo apt-get install g++)"
    fi
}

# A new environment, complete and tried, takes the place of the old one: a failure leaves that as it was.
install() {
    mkdir -p "$home" "$prefix/bin" 2>/dev/null && [ -w "$home" ] && [ -w "$prefix/bin" ] ||
        fail "$prefix cannot be written" "choose another folder by --prefix"
    say "This folder is install.sh's; install.sh --uninstall removes it." >"$home/made-by-install.sh"
    make_environment
    if [ -n "$wheels" ]; then
        fetch_wheels
        say "installing $wheel and what it needs"
        install_packages "$work/wheels/$wheel" "$work/wheels/$native"
    else
        say "installing dflash-local and what it needs"
        install_packages "dflash-local${version:+==$version}"
        say "compiling llama.cpp"
        "$environment/bin/dflash-local" build --backend "$backend" || fail "llama.cpp could not be compiled" "see above"
    fi
    check_installed
    old=$(readlink "$link" 2>/dev/null || true)
    ln -s "$environment/bin/dflash-local" "$home/link.$$"
    mv -f "$home/link.$$" "$link"
    made=$environment
    environment=
    if [ -n "$old" ] && [ "${old%/bin/dflash-local}" != "$made" ]; then
        rm -rf "${old%/bin/dflash-local}"
        say "replaced an older installation: restart servers that still run"
    fi
    say_end
}

make_environment() {
    unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_TARGET PIP_PREFIX
    export PIP_USER=0 # a pip.conf may say the opposite, with which pip installs into no environment
    environment=$home/env-$(date +%Y%m%d%H%M%S)-$$
    if [ "$installer" = uv ]; then
        # `dflash-local build` installs with pip.
        set -- --python "${python:->=3.10}" "$environment"
        [ -n "$wheels" ] || set -- --seed "$@"
        [ -z "$offline" ] || set -- --offline "$@"
        run uv venv --quiet "$@"
    else
        run "$python" -I -m venv "$environment"
    fi
}

# Sets `native`. Both wheels are then in $work/wheels, and are what SHA256SUMS says.
fetch_wheels() {
    mkdir "$work/wheels"
    fetch_wheel "$wheel"
    requirement=$("$environment/bin/python" -I -c "$READ_REQUIREMENT" "$work/wheels/$wheel" 2>>"$log") ||
        fail "$wheel is damaged ($(last_words))" "fetch it again"
    native=
    while read -r name; do
        case $name in
            "llama_cpp_python-$requirement-py3-none-"*) ! fits "$name" || native=$name ;;
        esac
    done <"$work/names"
    [ -n "$native" ] || fail "$wheels has no llama_cpp_python $requirement for this machine, which $wheel needs" \
        "put it there: both wheels are made together"
    fetch_wheel "$native"
}

# The version of llama-cpp-python that a wheel of dflash-local depends on.
READ_REQUIREMENT='
import re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode()
found = re.search(r"^Requires-Dist: llama[-_]cpp[-_]python *\(?==([\w.+]+)", text, re.MULTILINE)
sys.exit("it needs no llama-cpp-python") if found is None else print(found[1])
'

fetch_wheel() { # NAME
    say "fetching   $1"
    fetch "$1" "$work/wheels" || fail "$1 cannot be fetched ($(last_words))" "check the network, then try again"
    if [ -f "$work/SHA256SUMS" ]; then
        expected=$(awk -v name="$1" '$2 == name || $2 == "*" name { print $1 }' "$work/SHA256SUMS")
        [ -n "$expected" ] || fail "$wheels/SHA256SUMS has no line for $1" "write it again: make hashes"
        found=$("$environment/bin/python" -I -c \
            'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$work/wheels/$1")
        [ "$expected" = "$found" ] || fail "$1 is damaged: SHA256SUMS has another hash" "fetch it again"
    fi
}

# Puts a file of `wheels` into a folder.
fetch() { # NAME FOLDER
    case $wheels in
        *://*) ;;
        *)
            cp "$wheels/$1" "$2/$1" 2>>"$log"
            return
            ;;
    esac
    # Some servers take a plus sign for a blank.
    url=$wheels/$(printf '%s\n' "$1" | sed 's/+/%2B/g')
    if has curl; then
        curl -fsSL --retry 2 --connect-timeout 20 -o "$2/$1" "$url" 2>>"$log"
    elif has wget; then
        # Busybox's has neither --tries nor --timeout.
        wget -q -T 20 -O "$2/$1" "$url" 2>>"$log"
    else
        fail "neither curl nor wget is here" "install one of them, or name a folder by --wheels"
    fi
}

install_packages() { # WHAT...
    [ -z "$offline" ] || set -- --no-index "$@"
    case $wheels in
        "" | *://*) ;;
        *) set -- --find-links "$wheels" "$@" ;;
    esac
    if [ "$installer" = uv ]; then
        run uv pip install --compile-bytecode --python "$environment/bin/python" "$@"
    else
        run "$environment/bin/python" -I -m pip --disable-pip-version-check --no-input install "$@"
    fi
}

# In the words of pip and uv. What uv says of a certificate has 'sending request' in it, too.
TRUST_ERRORS='sslcertverificationerror|certificate.verify.failed|invalid peer certificate'
NETWORK_ERRORS='new connection|name resolution|unreachable|connection refused|dns error|timed out|sending request'

# Runs a command whose output only matters if it fails.
run() {
    if PIP_RETRIES=${PIP_RETRIES:-2} "$@" >>"$log" 2>&1; then
        return
    fi
    keep_log
    if grep -Eqi "$TRUST_ERRORS" "$log"; then
        variable=PIP_CERT
        [ "$installer" != uv ] || variable=SSL_CERT_FILE
        fail "the certificate of the index of packages is not trusted, as behind a proxy that opens TLS" \
            "set $variable to a PEM file of the authorities to trust, such as the proxy's (log: $kept)"
    fi
    if grep -Eqi "$NETWORK_ERRORS" "$log"; then
        fail "no network: packages that dflash-local needs cannot be fetched" \
            "connect, or set HTTPS_PROXY, or use --offline with a folder that has them (log: $kept)"
    fi
    if grep -qi 'no space left' "$log"; then
        fail "the disk is full" "make room, 1 GB, then try again"
    fi
    fail "$installer could not install it ($(last_words))" "check the index of packages, and read $kept"
}

last_words() { # of a failed command
    grep -i error "$log" 2>/dev/null | tail -n 1 | sed 's/^[[:space:]]*//; s/^[Ee][Rr][Rr][Oo][Rr]: *//' | grep . ||
        tail -n 1 "$log" 2>/dev/null
}

keep_log() { # sets `kept`
    kept=$(mktemp "${TMPDIR:-/tmp}/dflash-local-log.XXXXXX")
    cp "$log" "$kept"
}

# The command starts, and the native library loads on this machine.
check_installed() {
    "$environment/bin/dflash-local" --version >>"$log" 2>&1 &&
        loaded=$("$environment/bin/python" -I -c \
            'from dflash_local import native; print(*native.library_info()["backends"])' 2>>"$log") && return
    keep_log
    fail "what was installed does not start on this machine ($(last_words))" "read $kept, or try --backend cpu"
}

say_end() {
    say "installed  $("$link" --version), with $loaded"
    case " $(printf '%s' "$loaded" | tr '[:upper:]' '[:lower:]') " in
        *" $backend "*) ;;
        *)
            case $backend in
                cuda | vulkan) say "note       $backend did not load: dflash-local doctor says what is missing" ;;
            esac
            ;;
    esac
    case :$PATH: in
        *":$prefix/bin:"*) ;;
        *)
            say "note       $prefix/bin is not on PATH: add this line to your shell's profile"
            say "  export PATH=\"$prefix/bin:\$PATH\""
            ;;
    esac
    say "next       dflash-local demo"
    say "remove     install.sh --uninstall, with the same --prefix"
}

clean_up() {
    if [ -n "$environment" ]; then
        rm -rf "$environment"
    fi
    rm -rf "$work"
}

main "$@"
