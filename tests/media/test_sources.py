"""Where media come from: the request itself, one folder, and allowed hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_local.errors import MediaError
from dflash_local.media.media_hosts import MediaHosts
from dflash_local.media.media_sources import MediaSources
from tests.media.samples import data_url, png, text_of

NONE = MediaSources()


def read(url: str, sources: MediaSources = NONE) -> bytes:
    return sources.read(url, "image", "url")


def test_data_urls_and_bare_base64() -> None:
    data = png()
    assert read(data_url(data)) == data
    assert read(data_url(data, "IMAGE/JPEG")) == data  # what it is, its bytes say
    assert read(data_url(data, "image/png;charset=binary")) == data
    assert read(data_url(data, "")) == read(data_url(data, "application/octet-stream")) == data  # unknown to the client
    assert read(text_of(data)) == data
    assert read("\r\n".join(text_of(data)[at : at + 76] for at in range(0, len(text_of(data)), 76))) == data


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("data:text/html;base64,aGVsbG8=", "must have a type of image, got 'text/html'"),
        ("data:audio/wav;base64,aGVsbG8=", "must have a type of image"),
        ("data:image/png,hello", "must be base64"),
        ("data:image/png;base64", "must be data:image"),
        ("data:image/png;base64,aGVsbG8", "is not valid base64"),
        ("data:image/png;base64,aGVs bG8=", "is not valid base64"),
        ("data:image/png;base64,aGVsbG8=aGVs", "is not valid base64"),
        ("data:image/png;base64,é", "is not valid base64"),
        ("malformed", "is not valid base64"),
        ("A" * (50 << 20), "is longer than 32 MiB"),
        ("ftp://example.com/a.png", "has the scheme 'ftp'"),
        ("C:\\pictures\\a.png", "has the scheme 'C'"),
        ("https://example.com/a.png", "--media-hosts"),
        ("http://127.0.0.1/a.png", "--media-hosts"),
        ("file:///etc/passwd", "--media-path"),
    ],
)
def test_what_is_refused_without_flags(url: str, why: str) -> None:
    with pytest.raises(MediaError, match=why) as caught:
        read(url)
    assert caught.value.message.startswith("url ")
    assert len(caught.value.message) < 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a picture, and beside it what must not be read."""
    (tmp_path / "secret.png").write_bytes(b"secret")
    inside = tmp_path / "pictures"
    (inside / "more").mkdir(parents=True)
    (inside / "a b.png").write_bytes(b"picture")
    (inside / "more" / "c.png").write_bytes(b"another")
    (inside / "localhost.png").write_bytes(b"named")
    (inside / "out.png").symlink_to(tmp_path / "secret.png")
    (inside / "up").symlink_to(tmp_path)
    (inside / "in.png").symlink_to(inside / "a b.png")
    (inside / "round.png").symlink_to(inside / "round.png")
    return inside


def test_files_below_the_folder(folder: Path) -> None:
    sources = MediaSources(folder=folder)
    assert read("file://a%20b.png", sources) == b"picture"
    assert read("FILE://a b.png", sources) == b"picture"
    assert read(f"file://{folder}/more/c.png", sources) == b"another"
    assert read(f"file://localhost{folder}/more/c.png", sources) == b"another"
    assert read("file://localhost.png", sources) == b"named"
    assert read("file://more/../a b.png", sources) == b"picture"
    assert read("file:////more//c.png", sources) == b"another"
    assert read("file://in.png", sources) == b"picture"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret.png", "is not in the folder"),
        ("%2e%2e/secret.png", "is not in the folder"),
        ("more/../../secret.png", "is not in the folder"),
        ("out.png", "is not in the folder"),
        ("up/secret.png", "is not in the folder"),
        ("/etc/passwd", "cannot be opened"),  # below the folder there is none
        ("//etc/passwd", "cannot be opened"),
        ("/no/such/file", "cannot be opened"),
        ("/../secret.png", "is not in the folder"),
        ("//out.png", "is not in the folder"),
        ("round.png", "cannot be opened|is not in the folder"),
        ("none.png", "cannot be opened"),
        ("more", "is no file|cannot be opened"),
        ("", "is no file|cannot be opened"),
        ("a%00b.png", "is no path"),
        ("x" * 5000, "cannot be opened|too long"),
    ],
)
def test_other_files_are_refused(folder: Path, path: str, why: str) -> None:
    with pytest.raises(MediaError, match=why) as caught:
        read(f"file://{path}", MediaSources(folder=folder))
    assert "secret" not in caught.value.message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_no_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    with pytest.raises(MediaError, match="is no file"):
        read("file://pipe.png", MediaSources(folder=folder))


def test_hosts_are_exact_or_below_a_name() -> None:
    hosts = MediaHosts.of("Example.com, *.pictures.example ,local.example:8443,")
    allowed = [
        ("https", "example.com", 443), ("http", "example.com", 80), ("https", "EXAMPLE.COM.", 443),
        ("https", "a.pictures.example", 443), ("https", "a.b.pictures.example", 443), ("http", "local.example", 8443),
    ]  # fmt: skip
    refused = [
        ("https", "www.example.com", 443), ("https", "example.com", 8443), ("https", "example.com", 80),
        ("https", "pictures.example", 443), ("https", "xpictures.example", 443), ("https", "local.example", 443),
        ("https", "example.com.evil.example", 443), ("https", "", 443), ("ftp", "example.com", 21),
    ]  # fmt: skip
    assert all(hosts.allow(*one) for one in allowed)
    assert not any(hosts.allow(*one) for one in refused)
    assert not MediaHosts().allow("https", "example.com", 443)


@pytest.mark.parametrize(
    "text", ["*", "*.", "https://example.com", "a b", "example.com/x", "*.*.example", "a@b", "x:y"]
)
def test_names_that_are_no_hosts(text: str) -> None:
    with pytest.raises(ValueError, match="no host name"):
        MediaHosts.of(text)
