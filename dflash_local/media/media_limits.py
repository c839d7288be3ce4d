"""How large media may be. All of it is checked before anything is decoded. What libdflash refuses of an image
(ggml_ops/media/media_limits.h) is refused here, too."""

from __future__ import annotations

from dflash_local.words import MIB

MAX_MEDIA = 256  # of a prompt
MAX_BYTES = 32 * MIB  # of a file
MAX_SIDE = 16_384  # pixels
MAX_ASPECT = 200  # longer side over shorter side
MAX_PIXELS = 64 * MIB  # of an image: 192 MiB once it is decoded
MAX_PROMPT_PIXELS = 2 * MAX_PIXELS  # of all images of a prompt
MAX_SCANS = 100  # of a JPEG: each is a pass over all of its pixels
MAX_SEGMENTS = 10_000  # of a JPEG: 32 MiB of the largest, 64 KiB each, are 512
MAX_WAIT = 30  # seconds for all files of a prompt
MAX_SECONDS = 3600  # of audio
MAX_CHANNELS = 8
