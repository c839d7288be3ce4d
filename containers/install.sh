#!/bin/sh
# Install dflash-local and its dependencies into /opt/dflash, from the wheels of a backend in dist/ that are for Linux
# on this processor, or from wheels that are made here with some more packages of Debian.
# usage: install.sh "--backend NAME ..." [PACKAGE...]
set -eu
cd "$(dirname "$0")/.."
wheel_args=$1
shift
backend=${wheel_args#--backend }
# The newest wheel of ours, with the engine that it was made for: others may lie beside it.
own() {
    find dist -name "dflash_local-*+${backend%% *}-*linux*_$(uname -m).whl" -printf '%T@ %p\n' 2>/dev/null |
        sort -n | sed -n '$s/^[^ ]* //p'
}
apt-get update -q
apt-get install -qy --no-install-recommends python3 python3-venv ca-certificates
if [ -z "$(own)" ]; then
    apt-get install -qy --no-install-recommends g++ make python3-dev "$@"
    make wheel WHEEL_ARGS="$wheel_args"
fi
python3 -m venv /opt/dflash
/opt/dflash/bin/python -m pip install -q --no-cache-dir --find-links dist "$(own)"
# pip and the tests of other packages are not needed any more. The compiled modules (__pycache__) are: the image's user
# could not write them, and every start would compile them again.
/opt/dflash/bin/python -m pip uninstall -qy pip setuptools
find /opt/dflash -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} +
