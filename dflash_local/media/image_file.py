"""Image files, decoded to RGB by Pillow."""

from __future__ import annotations

import io
import logging
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from dflash_local.errors import MediaError
from dflash_local.media.jpeg_file import counted
from dflash_local.media.media_limits import MAX_ASPECT, MAX_BYTES, MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS, MAX_SIDE
from dflash_local.media.medium import Medium, hash_of
from dflash_local.media.png_file import without_texts
from dflash_local.words import MIB

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger(__name__)

# Readers that bound what they take, and need no other program.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_READABLE = "PNG, JPEG, WebP, GIF, BMP, TIFF or PPM"
_WIDE = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # modes of 16 bits a pixel: Pillow has 16-bit TIFF and PNG in them
_WIDE_INTEGERS = ("PNG", "PPM")  # formats whose pictures have 16 bits where Pillow has them in a mode of 32


def read_image(data: bytes, param: str) -> Medium:
    """An image file as RGB: turned as its EXIF data say, on white where it is transparent; of an animation the first
    picture.

    Raises:
        MediaError: it is too large, damaged, or no image; `param` is to blame.
    """
    if not data:
        raise _refusal(param, "is empty")
    if len(data) > MAX_BYTES:
        raise _refusal(param, f"has {len(data)} bytes, at most {MAX_BYTES // MIB} MiB are read")
    image = _opened(data, param)
    check_size(image, param)
    _check_samples(image, param)
    if image.format in ("JPEG", "MPO"):
        _check_segments(data, param)
    rgb = _decoded(image, param)
    return Medium("image", rgb.tobytes(), *rgb.size, hash_of("image", data))


def image_of(image: Image, param: str) -> Medium:
    """A picture that Pillow has in memory already. Raises MediaError as `read_image`."""
    if not image.width or not image.height:
        raise _refusal(param, "has no pixels")
    check_size(image, param)
    _check_samples(image, param)
    rgb = _decoded(image, param)
    pixels = rgb.tobytes()
    return Medium("image", pixels, *rgb.size, hash_of("image", f"{rgb.width} {rgb.height} ".encode() + pixels))


def check_size(image: Image, param: str) -> None:
    """Raise MediaError if it has too many pixels, or is too long."""
    width, height = image.size
    longer, shorter = max(width, height), min(width, height)
    if longer > min(MAX_SIDE, shorter * MAX_ASPECT) or width * height > MAX_PIXELS:
        raise _refusal(
            param,
            f"has {width} x {height} pixels; at most {MAX_PIXELS // MIB} Mi are read, {MAX_SIDE} a side, and no side "
            f"more than {MAX_ASPECT} times as long as the other",
            hint="make it smaller",
        )


def _check_samples(image: Image, param: str) -> None:
    """Raise MediaError if nothing says which of its samples is white."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _WIDE_INTEGERS and not _fits_16_bits(image)):
        why = "has samples that are no whole numbers of 8 or 16 bits without a sign"
        raise _refusal(param, why, hint="save it with 8 or 16 bits a sample")


def _fits_16_bits(image: Image) -> bool:
    """Whether the values of a picture in memory, whose format is not known any more, can only have 16 bits without a
    sign."""
    if image.format is not None:
        return False
    import numpy as np

    values = np.asarray(image)
    return bool(values.min() >= 0 and 255 < values.max() < 1 << 16)


def _check_segments(data: bytes, param: str) -> None:
    """Raise MediaError if a JPEG costs more than its pixels say."""
    n_scans, n_segments = counted(data, MAX_SCANS, MAX_SEGMENTS)
    if n_scans > MAX_SCANS:
        raise _refusal(param, f"has more than {MAX_SCANS} scans")
    if n_segments > MAX_SEGMENTS:
        raise _refusal(param, f"has more than {MAX_SEGMENTS} segments")


@cache
def _pillow() -> Any:
    """Imported with the first image. Its warnings quote what damaged files hold, and Python would keep each of them."""
    import PIL.Image

    warnings.filterwarnings("ignore", module=r"PIL\.")
    return PIL.Image


def _opened(data: bytes, param: str) -> Any:
    """The header alone is read."""
    pillow = _pillow()
    try:
        return pillow.open(io.BytesIO(without_texts(data)), formats=FORMATS)
    except pillow.DecompressionBombError:
        raise _refusal(param, "has too many pixels", hint="make it smaller") from None
    except pillow.UnidentifiedImageError:
        raise _refusal(param, f"is not an image that can be read: send {_READABLE}") from None
    except Exception as error:  # readers raise whatever a damaged header makes them
        log.debug("an image's header cannot be read", exc_info=True)
        raise _damaged(param, error) from None


def _decoded(image: Image, param: str) -> Image:
    try:
        return _rgb(_upright(image))
    except Exception as error:  # decoders raise whatever damaged data make them
        log.debug("an image cannot be decoded", exc_info=True)
        raise _damaged(param, error) from None


def _upright(image: Image) -> Image:
    from PIL import ImageOps

    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data say nothing, and spoil no picture
        log.debug("EXIF data cannot be read", exc_info=True)
        return image


def _rgb(image: Image) -> Image:
    if image.mode in _WIDE:
        image = _narrow(image)
    if image.has_transparency_data:
        return _on_white(image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _narrow(image: Image) -> Image:
    """The upper 8 of 16 bits: `convert` would cut off what is above 255. One value may be transparent."""
    import numpy as np

    values = np.asarray(image).clip(0, 65535)
    gray = _pillow().fromarray((values >> 8).astype(np.uint8))
    if (hidden := image.info.get("transparency")) is not None:
        gray.putalpha(_pillow().fromarray((values != hidden).astype(np.uint8) * 255))
    return gray


def _on_white(image: Image) -> Image:
    if image.getchannel("A").getextrema() == (255, 255):  # most screenshots
        return image.convert("RGB")
    white = _pillow().new("RGBA", image.size, (255, 255, 255, 255))
    return _pillow().alpha_composite(white, image).convert("RGB")


def _damaged(param: str, error: Exception) -> MediaError:
    why = str(error) or type(error).__name__
    return _refusal(param, f"is a damaged image, or of a kind that cannot be read: {why:.120}")


def _refusal(param: str, why: str, hint: str | None = None) -> MediaError:
    return MediaError.of(param, "image", why, hint)
