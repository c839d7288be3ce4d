#!/bin/sh
# What the running image has besides the wheels: Python, certificates, and a user who is not root.
set -eu
apt-get update -q
apt-get install -qy --no-install-recommends python3-minimal libpython3-stdlib ca-certificates "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
useradd --uid 10001 --create-home dflash
mkdir -p /models
chown dflash /models
