"""`python -m dflash_local.demo`: the same as `dflash-local demo`."""

import sys

from dflash_local.cli import main

sys.exit(main(["demo", *sys.argv[1:]]))
