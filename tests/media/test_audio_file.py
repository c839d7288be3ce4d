"""Audio files: recognised by their first bytes, and checked before anything takes memory by what they say."""

from __future__ import annotations

import io
import random
import struct
import wave

import pytest

from dflash_local.errors import MediaError
from dflash_local.media.audio_file import audio_format, read_audio
from dflash_local.media.media_limits import MAX_BYTES
from tests.media.samples import flac, mp3, png, wav


def test_formats_are_told_by_the_first_bytes() -> None:
    tagged = b"ID3\x04\0\0\0\0\0\x05" + bytes(5) + mp3()
    assert [audio_format(data) for data in (wav(), mp3(), tagged, flac())] == ["wav", "mp3", "mp3", "flac"]
    assert not any(audio_format(data) for data in (png(), b"OggS", b"\xff\xd8\xff\xe0", b""))


@pytest.mark.parametrize("data", [wav(), mp3(), flac(), wav(bits=8), wav(bits=32, kind=3), wav(channels=2, bits=24)])
def test_sound_files_are_read(data: bytes) -> None:
    medium = read_audio(data, "audio")
    assert (medium.kind, medium.width, medium.height) == ("audio", 0, 0)
    assert medium.data == data


def test_a_tag_before_a_flac_file_is_left_out() -> None:
    tagged = b"ID3\x04\0\0\0\0\0\x05" + bytes(5) + flac()
    assert read_audio(tagged, "audio", "flac").data == flac()


@pytest.mark.parametrize("said", [0, 0xFFFF_FFFF, 0x7FFF_FFFF, 321])
def test_a_wrong_size_in_a_wav_header_does_not_matter(said: int) -> None:
    medium = read_audio(wav(160, said=said), "audio")
    with wave.open(io.BytesIO(medium.data)) as file:
        assert file.getnframes() == 160
    assert medium.hash != read_audio(wav(160), "audio").hash  # it is that of the original bytes


def test_other_chunks_of_a_wav_file_are_left_out() -> None:
    data, note = wav(), b"LIST" + struct.pack("<I", 5) + b"hello\0"
    assert read_audio(data[:12] + note + data[12:] + note, "audio").data == data


def test_a_wav_file_of_an_extensible_format() -> None:
    data = wav()
    more = struct.pack("<HHI", 22, 16, 4) + b"\x01\0" + bytes.fromhex("000000001000800000aa00389b71")
    form = struct.pack("<H", 0xFFFE) + data[22:36] + more
    made = data[:12] + b"fmt " + struct.pack("<I", len(form)) + form + data[36:]
    assert read_audio(made, "audio").data == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"OggS" + bytes(60), "is not audio"),
        (png(), "is not audio"),
        (b"RIFF" + bytes(MAX_BYTES), "bytes, at most"),
        (wav()[:40], "no samples"),
        (wav(0), "no samples"),
        (wav()[:30], "no samples|cut off"),
        (wav(rate=0), "contradicts"),
        (wav(100_000, rate=1), "longer than"),  # 16,000 times as much, once it is resampled
        (wav(channels=9), "channels"),
        (wav(kind=2, bits=8), "format 2"),
        (wav(bits=16, frame=1), "contradicts"),
        (wav()[:12] + wav()[36:] + wav()[12:36], "before their format"),
        (b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 2000, "chunks"),
        (b"ID3\x04\0\0\0\0\0\x05" + bytes(500), "no sound"),
        (b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + mp3(), "no sound"),  # a tag longer than the file
        ((b"\xff\xf3\x14\x00" + bytes(20)) * 160_000, "longer than"),  # 8 kbit/s
        (flac(0), "how long"),
        (flac(2**36 - 1), "longer than"),
        (flac(44_100, 0), "channels at 0 Hz"),
        (b"fLaC" + bytes(80), "STREAMINFO"),
        (b"fLaC", "STREAMINFO"),
    ],
)
def test_files_that_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(MediaError, match=why) as caught:
        read_audio(data, "audio.data")
    assert (caught.value.param, caught.value.kind) == ("audio.data", "audio")


def test_the_declared_format_must_be_the_files_own() -> None:
    read_audio(wav(), "audio", "wav")
    with pytest.raises(MediaError, match="is a wav file, but the format says mp3"):
        read_audio(wav(), "audio", "mp3")


@pytest.mark.parametrize("make", [wav, mp3, flac])
def test_damaged_bytes_end_in_one_error_or_a_file(make: object) -> None:
    data, chance = make(), random.Random(7)  # type: ignore[operator]
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(min(len(damaged), 80))] = chance.randrange(256)
        try:
            medium = read_audio(bytes(damaged), "audio")
        except MediaError:
            continue
        assert 0 < len(medium.data) <= len(data)
