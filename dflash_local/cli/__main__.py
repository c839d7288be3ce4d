"""`python -m dflash_local.cli`."""

import sys

from dflash_local.cli import main

sys.exit(main())
