#!/bin/sh
# The contents of the final image besides the wheels: Python, certificates, and a user who is not root.
set -eu
apt-get update -q
apt-get install -qy --no-install-recommends python3-minimal libpython3-stdlib ca-certificates "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
useradd --uid 10001 --create-home dflash
mkdir -p /models
chown dflash /models
