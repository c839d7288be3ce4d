"""Image files of all kinds become RGB; what is too large or damaged is refused."""

from __future__ import annotations

import io
import random
import resource
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dflash_local.build.upstream import native_source
from dflash_local.errors import MediaError
from dflash_local.media.image_file import image_of, read_image
from dflash_local.media.jpeg_file import counted
from dflash_local.media.media_limits import MAX_ASPECT, MAX_BYTES, MAX_PIXELS, MAX_SIDE
from dflash_local.media.medium import Medium
from tests.media.samples import RED, picture, png, png_of, saved

GRADIENT = Image.fromarray(np.arange(12 * 8 * 3, dtype=np.uint8).reshape(8, 12, 3))


def pixels(medium: Medium) -> np.ndarray:
    """RGB [height, width, 3]."""
    return np.frombuffer(medium.data, np.uint8).reshape(medium.height, medium.width, 3)


def read(data: bytes) -> np.ndarray:
    return pixels(read_image(data, "image"))


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_files_keep_every_pixel(form: str) -> None:
    options = {"lossless": True} if form == "WEBP" else {}
    assert np.array_equal(read(saved(GRADIENT, form, **options)), np.asarray(GRADIENT))


def test_a_jpeg_is_as_pillow_decodes_it() -> None:
    data = saved(GRADIENT, "JPEG", quality=90)
    assert np.array_equal(read(data), np.asarray(Image.open(BytesIO(data))))


@pytest.mark.parametrize(
    ("mode", "color", "rgb"),
    [
        ("L", 100, (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("P", 0, (0, 0, 0)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),  # nothing is to be seen: white
        ("RGBA", (255, 0, 0, 255), RED),
        ("RGBA", (0, 0, 0, 128), (127, 127, 127)),
        ("LA", (0, 0), (255, 255, 255)),
    ],
)
def test_modes_become_rgb_on_white(mode: str, color: object, rgb: tuple[int, ...]) -> None:
    found = read(saved(picture(5, 2, color, mode)))
    assert found.shape == (2, 5, 3)
    assert np.abs(found.astype(int) - rgb).max() <= 1


def test_a_transparent_color_of_a_palette_is_white() -> None:
    image = picture(3, 3, RED).convert("P", palette=Image.Palette.ADAPTIVE)
    assert (read(saved(image, "GIF", transparency=image.getpixel((0, 0)))) == 255).all()
    assert (read(saved(picture(3, 3, RED), "PNG", transparency=RED)) == 255).all()


def test_cmyk_becomes_rgb() -> None:
    found = read(saved(picture(8, 8, (0, 255, 255, 0), "CMYK"), "JPEG", quality=100))
    assert np.abs(found.astype(int) - RED).max() < 8


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_of_gray_keep_their_upper_half(form: str) -> None:
    values = np.array([[0, 255, 256, 0x8000, 0xFFFF]], dtype=np.uint16)
    assert read(saved(Image.fromarray(values), form))[0, :, 0].tolist() == [0, 0, 1, 0x80, 0xFF]


def test_sixteen_bits_of_each_color() -> None:
    row = b"\0" + struct.pack(">HHH", 0xFFFF, 0x8000, 0)
    assert read(png_of(1, 1, bits=16, rows=row)).tolist() == [[[255, 128, 0]]]


def test_a_transparent_value_of_sixteen_bits_is_white() -> None:
    values = np.array([[1000, 1001]], dtype=np.uint16)
    assert read(saved(Image.fromarray(values), "PNG", transparency=1000))[0, :, 0].tolist() == [255, 1001 >> 8]


def test_sixteen_bits_of_a_ppm_file() -> None:
    assert read(b"P5 2 1 65535\n" + struct.pack(">HH", 0x8000, 200))[0, :, 0].tolist() == [0x80, 0]


@pytest.mark.parametrize(
    "image",
    [Image.fromarray(np.full((3, 4), 200, np.int32)), Image.fromarray(np.full((3, 4), 0.5, np.float32))],
)
def test_samples_whose_white_is_unknown_are_refused(image: Image.Image) -> None:
    for data in (saved(image, "TIFF"), b"Pf 1 1 -1.0\n" + struct.pack("<f", 0.5)):
        with pytest.raises(MediaError, match="8 or 16 bits without a sign"):
            read_image(data, "image")
    with pytest.raises(MediaError, match="8 or 16 bits without a sign"):
        image_of(image, "image")


@pytest.mark.parametrize("turn", range(1, 9))
def test_pictures_stand_as_their_exif_data_say(turn: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    turned = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # PIL.Image.Transpose
    wanted = GRADIENT if turn == 1 else GRADIENT.transpose(Image.Transpose(turned[turn]))
    assert np.array_equal(read(saved(GRADIENT, "PNG", exif=exif)), np.asarray(wanted))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_data_spoil_no_picture() -> None:
    data = saved(GRADIENT, "PNG")
    chunk = b"eXIf" + b"II*\0\xff\xff\xff\xff"
    exif = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    assert np.array_equal(read(data[:33] + exif + data[33:]), np.asarray(GRADIENT))


def test_long_texts_and_profiles_of_a_png_do_not_matter() -> None:
    """Pillow itself refuses those of more than 1 MiB."""
    texts = PngInfo()
    texts.add_text("workflow", "x" * (2 << 20), zip=True)
    texts.add_itxt("prompt", "x" * (2 << 20), zip=True)
    texts.add(b"zTXt", b"note\0\0" + zlib.compress(bytes(2 << 20)), after_idat=True)
    data = saved(GRADIENT, "PNG", pnginfo=texts, icc_profile=bytes(2 << 20))
    assert np.array_equal(read(data), np.asarray(GRADIENT))
    assert read_image(data, "image").hash != read_image(saved(GRADIENT, "PNG"), "image").hash  # that of all bytes


def test_a_text_of_a_png_may_turn_it() -> None:
    texts = PngInfo()
    texts.add_text("note", "left out")
    texts.add_itxt("XML:com.adobe.xmp", '<rdf:Description tiff:Orientation="6"/>')
    assert read(saved(GRADIENT, "PNG", pnginfo=texts)).shape == (12, 8, 3)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_its_first_picture(form: str) -> None:
    frames = [picture(6, 6, RED), picture(6, 6, (0, 0, 255))]
    data = saved(frames[0], form, save_all=True, append_images=frames[1:])
    assert np.abs(read(data).astype(int) - RED).max() < 4


def test_one_pixel() -> None:
    assert read(png(1, 1)).tolist() == [[[255, 0, 0]]]


def test_equal_files_have_equal_hashes() -> None:
    assert read_image(png(), "image").hash == read_image(png(), "image").hash
    assert read_image(png(), "image").hash != read_image(png(5), "image").hash
    assert image_of(picture(), "image").hash == image_of(picture(), "image").hash
    assert image_of(picture(2, 6), "image").hash != image_of(picture(6, 2), "image").hash


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"hello, this is no picture", "is not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not an image"),
        (b"%PDF-1.7", "is not an image"),
        (b"\x89PNG\r\n\x1a\n", "damaged|not an image"),
        (bytes(MAX_BYTES + 1), "bytes, at most"),
        (png_of(0, 1), "damaged|not an image"),
        (png_of(MAX_SIDE + 1, MAX_SIDE // 10), "pixels"),
        (png_of(MAX_SIDE // 10, MAX_SIDE + 1), "pixels"),
        (png_of(10, 10 * MAX_ASPECT + 1), "pixels"),
        (png_of(MAX_SIDE, MAX_PIXELS // MAX_SIDE + 1), "pixels"),
        (png_of(50_000, 50_000), "pixels"),
        (png_of(2**31 - 1, 2**31 - 1), "pixels|damaged"),
        (png_of(64, 64, rows=b"\0" + bytes(5)), "damaged"),  # far too few rows
    ],
)
def test_files_that_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(MediaError, match=why) as caught:
        read_image(data, "messages[0].content[1].image_url.url")
    assert caught.value.param == "messages[0].content[1].image_url.url"
    assert caught.value.message.startswith("messages[0].content[1].image_url.url ")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_truncated_files_are_refused(form: str) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (48, 48, 3), dtype=np.uint8))
    data = saved(noise, form)
    for part in (3, 4, 8):
        with pytest.raises(MediaError):
            read_image(data[: len(data) * (part - 1) // part - 40], "image")


def test_a_bomb_is_refused_before_its_pixels_are_there() -> None:
    bombs = [
        png_of(20_000, 20_000, rows=bytes(1_000_000)),
        saved(picture(1, 1), "GIF")[:6] + struct.pack("<HH", 65_535, 65_535) + saved(picture(1, 1), "GIF")[10:],
        b"RIFF" + struct.pack("<I", 30) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xfe\x3f\0\xfe\x3f\0"
        + b"VP8L" + struct.pack("<I", 5) + b"\x2f" + bytes(5),
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bomb in bombs:
        with pytest.raises(MediaError):
            read_image(bomb, "image")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


@pytest.mark.filterwarnings("ignore")  # the module's own filter holds outside of pytest
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_damaged_bytes_end_in_one_error_or_a_picture(form: str) -> None:
    noise = Image.fromarray(np.random.default_rng(2).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    data, chance = saved(noise, form), random.Random(form)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            medium = read_image(bytes(damaged), "image")
        except MediaError:
            continue
        assert len(medium.data) == medium.width * medium.height * 3


def test_a_jpeg_of_many_scans_is_refused() -> None:
    """Each of them makes the decoder go over all pixels again."""
    data = saved(GRADIENT, "JPEG", progressive=True)
    assert 2 < data.count(b"\xff\xda") < 20
    start = data.rindex(b"\xff\xda")
    with pytest.raises(MediaError, match="has more than 100 scans"):
        read_image(data[:start] + data[start:-2] * 100 + b"\xff\xd9", "image")
    assert read(data).shape == (8, 12, 3)


def test_only_the_scans_of_the_picture_count() -> None:
    data = saved(GRADIENT, "JPEG")
    scan = b"\xff\xda" * 200
    comment = b"\xff\xfe" + struct.pack(">H", 2 + len(scan)) + scan
    for more in (data + scan, data[:2] + comment + data[2:]):  # behind its end, as in a motion photo, or in a comment
        assert np.array_equal(read(more), read(data))
    hidden = b"\xff\x01\xff\xd0\xff\xff"  # markers without a segment, and a filler
    assert counted(data[:2] + hidden + data[2:], 100, 100)[0] == 1


def test_a_jpeg_of_many_segments_is_refused() -> None:
    data = saved(GRADIENT, "JPEG")
    start = data.rindex(b"\xff\xda")
    for segment, why in ((b"\xff\xfe\0\2", "10000 segments"), (b"\xff\xda\0\2", "100 scans")):
        with pytest.raises(MediaError, match=f"has more than {why}"):
            read_image(data[:start] + segment * 20_000 + data[start:], "image")
    assert counted(data[:2] + b"\xff\xda\0\2" * 1000, 100, 2000) == (101, 101)  # it looks no further
    assert counted(data[:2] + b"\xff\xfe\0\2" * 1000, 100, 200) == (0, 201)


def test_a_picture_of_pillow_in_memory() -> None:
    assert np.array_equal(pixels(image_of(GRADIENT, "image")), np.asarray(GRADIENT))
    with pytest.raises(MediaError, match="pixels"):
        image_of(Image.new("1", (MAX_SIDE + 1, MAX_SIDE // 100)), "image")
    with pytest.raises(MediaError, match="no pixels"):
        image_of(Image.new("RGB", (0, 3)), "image")


def test_16_bits_in_memory() -> None:
    """As a copy of a PGM with 16 bits, which Pillow has in a mode of 32."""
    scan = Image.open(io.BytesIO(b"P5 2 1 65535\n" + struct.pack(">HH", 0x8000, 200)))
    for image in (scan, scan.copy()):
        assert pixels(image_of(image, "image"))[0, 0, 0] == 0x80
    for values in ([0, 200], [-1, 300], [0, 1 << 16]):  # which of them is white is not known
        with pytest.raises(MediaError, match="no whole numbers"):
            image_of(Image.fromarray(np.array([values], np.int32)), "image")


def test_the_limits_are_those_of_libdflash() -> None:
    header = (native_source() / "ggml_ops" / "media" / "media_limits.h").read_text(encoding="utf-8")
    assert f"MAX_SIDE   = 1 << {MAX_SIDE.bit_length() - 1};" in header
    assert f"MAX_ASPECT = {MAX_ASPECT};" in header
    assert 1 << (MAX_SIDE.bit_length() - 1) == MAX_SIDE and MAX_PIXELS <= 100_000_000
