#!/bin/sh
# Install dflash-local and its dependencies into /opt/dflash, from the wheels of a backend in dist/, or from wheels that
# are made here with some more packages of Debian. usage: install.sh "--backend NAME ..." [PACKAGE...]
set -eu
cd "$(dirname "$0")/.."
wheel_args=$1
shift
backend=${wheel_args#--backend }
own="dist/dflash_local-*+${backend%% *}-*.whl"
apt-get update -q
apt-get install -qy --no-install-recommends python3 python3-venv ca-certificates
if ! ls $own >/dev/null 2>&1; then
    apt-get install -qy --no-install-recommends g++ make python3-dev "$@"
    make wheel WHEEL_ARGS="$wheel_args"
fi
python3 -m venv /opt/dflash
# The newest, with the engine that it was made for: others may lie beside it.
/opt/dflash/bin/python -m pip install -q --no-cache-dir --find-links dist "$(ls -t $own | head -n 1)"
# pip and the tests of other packages are not needed any more.
/opt/dflash/bin/python -m pip uninstall -qy pip setuptools
find /opt/dflash -name __pycache__ -prune -exec rm -rf {} +
find /opt/dflash -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} +
