"""The projector of a model by name: found beside it, checked from its header, downloaded, and what chooses another."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from dflash_local.cli import main, parse
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.named_models import take_models
from dflash_local.errors import HubError, ModelError, RequestError
from dflash_local.hub import selection
from dflash_local.hub.cache import HubFile
from dflash_local.hub.client import Hub
from dflash_local.hub.url_file import fetch_url
from tests.projector_files import projector_file

from .stand_in import COMMIT, StandIn, refuse, send, send_file

TARGET = "user/Seeing-GGUF"
pytestmark = pytest.mark.usefixtures("own_folders")

Make = Callable[..., Hub]


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return projector_file(tmp_path / "made" / "mmproj.gguf").read_bytes()


@pytest.fixture
def files(endpoint: StandIn, pocket: dict[str, Path], content: bytes) -> dict[str, bytes]:
    """The files of the target's repository: a model, and two projectors of which the first is meant."""
    model = pocket["target"].read_bytes()
    endpoint.add(TARGET, {"mmproj-F16.gguf": content, "mmproj-F32.gguf": b"GGUF no", "Seeing-Q8_0.gguf": model})
    return endpoint.repositories[TARGET].files


def taken(*flags: str) -> tuple[str | None, dict[str, Any]]:
    """The projector of the models that flags name, and the engine's options."""
    args = parse(["serve", *flags])[1]
    models = take_models(args)
    return models.projector, engine_options(args, models)


@pytest.mark.parametrize(
    ("paths", "model", "expected"),
    [
        (["mmproj-BF16.gguf", "mmproj-Q8_0.gguf"], "m-Q4_K_M.gguf", "mmproj-Q8_0.gguf"),
        (["mmproj-F32.gguf", "mmproj-F16.gguf"], "m-BF16.gguf", "mmproj-F16.gguf"),
        (["mmproj-F16.gguf", "Q4/mmproj-F32.gguf"], "Q4/m-Q4_0.gguf", "Q4/mmproj-F32.gguf"),  # the deepest
        (["Q8/mmproj-Q8_0.gguf"], "Q4/m-Q4_0.gguf", None),
        (["m-mmproj-f16.gguf", "mmproj.txt"], "m-Q4_0.gguf", "m-mmproj-f16.gguf"),
    ],
)
def test_upstreams_picks(paths: list[str], model: str, expected: str | None) -> None:
    found = selection.projector([HubFile("u/r", "a" * 40, path) for path in paths], model)
    assert (found and found.path) == expected


def test_a_name_alone_finds_it(
    endpoint: StandIn, files: dict[str, bytes], content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path, options = taken("-hf", TARGET)
    assert path and Path(path).name == "mmproj-F16.gguf" and Path(path).read_bytes() == content
    assert options["mmproj"] == path
    assert "note: projector: mmproj-F16.gguf" in capsys.readouterr().err
    endpoint.requests.clear()
    assert taken("-hf", TARGET, "--offline")[0] == path
    assert endpoint.requests == []


@pytest.mark.parametrize("flag", ["--no-mmproj", "--no-mmproj-auto"])
def test_none_is_wanted(endpoint: StandIn, files: dict[str, bytes], flag: str) -> None:
    assert taken("-hf", TARGET, flag) == (None, {**taken("-hf", TARGET, flag)[1], "mmproj": None})
    assert not [path for path in endpoint.paths("cdn") if "mmproj" in path]


@pytest.mark.parametrize("variable", ["LLAMA_ARG_NO_MMPROJ_AUTO=1", "LLAMA_ARG_MMPROJ_AUTO=off"])
def test_a_variable_says_so(files: dict[str, bytes], variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*variable.split("="))
    assert taken("-hf", TARGET)[0] is None
    assert taken("-hf", TARGET, "--mmproj-auto")[0] is not None


def test_one_that_is_named_counts(
    files: dict[str, bytes], tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "made" / "mmproj.gguf"
    assert taken("-hf", TARGET, "--mmproj", str(own))[0] == str(own)
    assert taken("-hf", TARGET, "-mm", str(own), "--no-mmproj")[0] == str(own)  # as llama-server
    monkeypatch.setenv("LLAMA_ARG_MMPROJ", str(own))
    assert taken("-hf", TARGET)[0] == str(own)
    with pytest.raises(ModelError, match="no such file"):
        taken("-hf", TARGET, "--mmproj", str(tmp_path / "none.gguf"))


def test_a_local_file_has_none(files: dict[str, bytes], pocket: dict[str, Path], tmp_path: Path) -> None:
    model = tmp_path / "made" / "M-F16.gguf"
    model.symlink_to(pocket["target"])
    assert taken("-m", str(model))[0] is None


def test_one_that_does_not_fit_is_passed_over(
    endpoint: StandIn, files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its header: nothing of it is downloaded, and the model reads text, as before."""
    files["mmproj-F16.gguf"] = projector_file(tmp_path / "wide.gguf", 512).read_bytes()
    assert taken("-hf", TARGET)[0] is None
    said = capsys.readouterr().err
    assert "mmproj-F16.gguf cannot be used: the rows of mmproj-F16.gguf are 512 wide" in said
    assert "Seeing-Q8_0.gguf reads text only" in said
    cached = Path(os.environ["LLAMA_CACHE"]).glob("**/snapshots/**/*.gguf")
    assert sorted(path.name for path in cached) == ["Seeing-Q8_0.gguf"]
    files["mmproj-F16.gguf"] = b"no GGUF"
    assert taken("-hf", TARGET)[0] is None
    assert "mmproj-F16.gguf is not a GGUF file; Seeing-Q8_0.gguf reads text only" in capsys.readouterr().err


def test_a_server_of_vectors_needs_none(files: dict[str, bytes]) -> None:
    args = parse(["serve", "-hf", TARGET, "--embedding"])[1]
    assert take_models(args, writes=False).projector is None


def test_pull_fetches_it(endpoint: StandIn, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", TARGET, "--dry-run"]) == 0
    assert f"mmproj:  {TARGET}/mmproj-F16.gguf" in capsys.readouterr().out
    assert main(["pull", TARGET, "--no-mmproj"]) == 0
    assert "mmproj" not in capsys.readouterr().out
    assert main(["pull", TARGET]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("mmproj:  ") and Path(line.split()[1]).read_bytes() == files["mmproj-F16.gguf"]


# ---- --mmproj-url ----


def address(endpoint: StandIn, name: str = "mmproj-F16.gguf") -> str:
    """Of a file at the stand-in's second server, which is no Hub."""
    return f"{endpoint.cdn}/{TARGET}/{name}"


def tagged(endpoint: StandIn, tag: str) -> None:
    """That server gives this ETag from now on, and knows what has not changed."""

    def answer(handler: Any, request: Any) -> bool:
        if request.host != "cdn":
            return False
        if handler.headers.get("If-None-Match") == tag:
            send(handler, 304)
        else:
            name = request.path.rpartition("/")[2]
            send(handler, 200, endpoint.repositories[TARGET].files[name], {"ETag": tag})
        return True

    endpoint.faults[:] = [answer]


def test_an_address(
    endpoint: StandIn, files: dict[str, bytes], pocket: dict[str, Path], tmp_path: Path, content: bytes
) -> None:
    tagged(endpoint, '"one"')
    flags = ("-m", str(pocket["target"]), "--mmproj-url", address(endpoint))
    path = taken(*flags)[0]
    assert path and Path(path).read_bytes() == content
    assert Path(path).parent.parent == tmp_path / "own" / "projectors"
    assert taken("-hf", TARGET, "-mmu", address(endpoint))[0] == path
    before = Path(path).stat().st_mtime_ns
    assert taken(*flags)[0] == path and Path(path).stat().st_mtime_ns == before
    files["mmproj-F16.gguf"] = content + b"more"
    tagged(endpoint, '"two"')
    assert taken(*flags)[0] == path and Path(path).read_bytes() == content + b"more"
    endpoint.requests.clear()
    assert taken(*flags, "--offline")[0] == path and endpoint.requests == []
    assert taken(*flags, "--mmproj", str(path))[0] == path and endpoint.requests == []  # a file counts first
    assert not any(request.authorization for request in endpoint.requests)


def test_an_address_of_the_hub_uses_its_cache(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, cache_folder: Path
) -> None:
    path = fetch_url(f"{endpoint.endpoint}/{TARGET}/resolve/main/mmproj-F16.gguf", make_hub())
    assert path.is_relative_to(cache_folder) and path.read_bytes() == files["mmproj-F16.gguf"]
    with pytest.raises(HubError, match=f"{TARGET} holds no file none.gguf"):
        fetch_url(f"{endpoint.endpoint}/{TARGET}/resolve/main/none.gguf", make_hub())


def test_an_address_of_a_branch_with_a_slash(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, cache_folder: Path
) -> None:
    endpoint.repositories[TARGET].branches = {"main": "b" * 40, "feature/x": COMMIT}
    files["sub dir/mmproj.gguf"] = b"GGUF"
    address = f"{endpoint.endpoint}/{TARGET}/resolve/feature%2Fx/sub%20dir/mmproj.gguf?download=true#top"
    path = fetch_url(address, make_hub())
    assert path.is_relative_to(cache_folder) and path.parts[-2:] == ("sub dir", "mmproj.gguf")
    with pytest.raises(HubError, match="holds no file") as caught:
        fetch_url(f"{endpoint.endpoint}/{TARGET}/resolve/feature%2Fx/none.gguf", make_hub())
    assert caught.value.hint == f"see {endpoint.endpoint}/{TARGET}/tree/feature%2Fx"
    with pytest.raises(HubError, match="the server answered 401"):  # no repository, so no file of the Hub
        fetch_url(f"{endpoint.endpoint}/user/a%2Fb/resolve/main/mmproj.gguf", make_hub())


def test_a_hub_below_a_path(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def below(handler: Any, request: Any) -> bool:
        request.path = request.path.removeprefix("/hf")
        return False

    endpoint.faults.append(below)
    monkeypatch.setenv("MODEL_ENDPOINT", f"{endpoint.endpoint}/hf/")
    path = fetch_url(f"{endpoint.endpoint}/hf/{TARGET}/resolve/main/mmproj-F16.gguf", make_hub())
    assert path.is_relative_to(cache_folder) and path.read_bytes() == files["mmproj-F16.gguf"]


def test_a_token_stays_with_the_hub(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    fetch_url(address(endpoint), make_hub(token="hf_" + "y" * 34))
    assert [request.authorization for request in endpoint.requests] == [None]


def test_a_broken_download_goes_on(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, waits: list[float]
) -> None:
    endpoint.cut("mmproj", 1000)
    endpoint.fault("mmproj", refuse(503))
    hub = make_hub()
    path = fetch_url(address(endpoint), hub)
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
    assert len(waits) == 2 and not list(path.parent.glob("*.incomplete"))


def test_an_address_that_asks_to_wait(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, waits: list[float]
) -> None:
    endpoint.fault("mmproj", refuse(503, headers={"Retry-After": "9"}))
    endpoint.fault("mmproj", refuse(429, headers={"Retry-After": "7"}))
    hub = make_hub()
    assert fetch_url(address(endpoint), hub).read_bytes() == content
    assert waits == [9.0, 7.0]
    assert hub.__dict__["notes"] == [
        "mmproj-F16.gguf: the server answered 503; trying again",
        "mmproj-F16.gguf: the server limits requests for 7 s; trying again",
    ]


def test_an_address_that_asks_to_wait_too_long(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, waits: list[float]
) -> None:
    endpoint.fault("mmproj", refuse(429, headers={"Retry-After": "3600"}))
    with pytest.raises(HubError, match="limits requests and asks to wait 3600 s") as caught:
        fetch_url(address(endpoint), make_hub())
    assert (caught.value.status, caught.value.hint, waits) == (429, "try again then", [])


def send_unsized(content: bytes) -> Callable[[Any], None]:
    """An answer that tells neither its length nor an ETag, and ends when the connection does."""

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = True

    return answer


def test_what_is_no_whole_gguf_is_not_kept(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes
) -> None:
    for wrong, says in ((b"<html>log in</html>", "is not a GGUF file"), (content[:-9], "it ends before the data")):
        endpoint.fault("mmproj", send_unsized(wrong))
        with pytest.raises(HubError, match=f"mmproj-F16.gguf .*{says}") as caught:
            fetch_url(address(endpoint), make_hub())
        assert caught.value.hint == "is it the address of the file itself?"
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), make_hub())
    endpoint.faults[:] = []
    endpoint.fault("mmproj", send_unsized(b"<html>log in</html>"))
    hub = make_hub()
    assert fetch_url(address(endpoint), hub) == path and path.read_bytes() == content
    assert "is not a GGUF file; using the one that was downloaded before" in hub.__dict__["notes"][-1]


def test_what_cannot_be_had(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, waits: list[float]
) -> None:
    hub = make_hub()
    with pytest.raises(HubError, match="offline mode is on"):
        fetch_url(address(endpoint), make_hub(offline=True))
    broken = ("http://[::1/a.gguf", "http://host:99999/a.gguf", "http://host:0/a.gguf", f"{endpoint.endpoint}:x/a.gguf")
    for url in ("ftp://host/a.gguf", "mmproj.gguf", "http:///a.gguf", "https://host/", *broken):
        with pytest.raises(RequestError, match="is no http"):
            fetch_url(url, hub)
    endpoint.fault("mmproj", refuse(404))
    with pytest.raises(HubError, match="the server answered 404") as caught:
        fetch_url(address(endpoint), hub)
    assert caught.value.status == 404
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), hub)
    endpoint.faults.clear()
    endpoint.fault("mmproj", refuse(503), times=20)
    assert fetch_url(address(endpoint), hub) == path and path.read_bytes() == content
    assert "using the one that was downloaded before" in hub.__dict__["notes"][-1]
    endpoint.faults.clear()
    endpoint.fault("mmproj", lambda handler: send(handler, 302, b"", {"Location": handler.path}), times=50)
    assert fetch_url(address(endpoint), hub) == path
    assert "redirects" in hub.__dict__["notes"][-1]


@pytest.mark.parametrize(
    "name", ["..", "a%5Cb.gguf", "a%00b.gguf", "a%0Ab.gguf", "a\udc80.gguf", "x" * 300, "%C3%A9" * 125], ids=ascii
)
def test_a_name_that_no_file_can_have(endpoint: StandIn, make_hub: Make, name: str) -> None:
    with pytest.raises(RequestError, match="ends with a name that no file here can have"):
        fetch_url(address(endpoint, name), make_hub())
    assert endpoint.requests == []


@pytest.mark.parametrize("status", [300, 302, 304])
def test_an_address_that_leads_nowhere(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, waits: list[float], status: int
) -> None:
    endpoint.fault("mmproj", refuse(status))
    with pytest.raises(HubError, match=f"the server answered {status}"):
        fetch_url(address(endpoint), make_hub())
    assert waits == []


def test_a_failure_leaves_no_part(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, waits: list[float], tmp_path: Path
) -> None:
    endpoint.cut("mmproj", 1000)
    endpoint.fault("mmproj", refuse(404))
    with pytest.raises(HubError, match="the server answered 404"):
        fetch_url(address(endpoint), make_hub())
    assert not list(tmp_path.glob("own/**/*.incomplete"))


def test_parts_of_killed_processes(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, tmp_path: Path
) -> None:
    folders = [tmp_path / "own" / "projectors" / name for name in ("old", "new")]
    old, new = [folder / "a.gguf.incomplete" for folder in folders]
    for part in (old, new):
        part.parent.mkdir(parents=True)
        part.write_bytes(b"GG")
    os.utime(old, (0, 0))
    assert fetch_url(address(endpoint), make_hub()).read_bytes() == content
    assert not old.exists() and new.exists()  # another process may be at the new one


def test_a_damaged_tag_is_not_sent(endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes) -> None:
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), make_hub())
    path.with_name(path.name + ".etag").write_text('"one\0"')
    assert fetch_url(address(endpoint), make_hub()).read_bytes() == content


def test_a_file_that_is_gone_is_fetched_again(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes
) -> None:
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), make_hub())
    path.unlink()
    assert fetch_url(address(endpoint), make_hub()) == path and path.read_bytes() == content


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {"Content-Encoding": "br"}])
def test_a_compressed_answer_is_not_kept(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, headers: dict[str, str]
) -> None:
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), make_hub())
    endpoint.faults.clear()
    endpoint.fault("mmproj", lambda handler: send(handler, 200, b"packed", headers))
    hub = make_hub()
    assert fetch_url(address(endpoint), hub) == path and path.read_bytes() == content
    assert "came compressed" in hub.__dict__["notes"][-1]


def test_a_part_that_was_not_asked_for(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, waits: list[float]
) -> None:
    endpoint.fault("mmproj", lambda handler: send(handler, 206, b"part", {"Content-Range": "bytes 0-3/4"}))
    with pytest.raises(HubError, match="the server answered 206"):
        fetch_url(address(endpoint), make_hub())
    endpoint.fault("mmproj", lambda handler: send_file(handler, endpoint, headers={"ETag": '"one"'}, cut=1000))
    endpoint.fault("mmproj", lambda handler: send(handler, 206, b"part", {"Content-Range": "bytes 5-8/9"}))
    hub = make_hub()
    assert fetch_url(address(endpoint), hub).read_bytes() == content
    assert "another part" in hub.__dict__["notes"][-1]


def test_a_part_that_is_not_there(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, waits: list[float]
) -> None:
    endpoint.fault("mmproj", lambda handler: send_file(handler, endpoint, headers={"ETag": '"one"'}, cut=1000))
    endpoint.fault("mmproj", lambda handler: send(handler, 416, b"", {"Content-Range": f"bytes */{len(content)}"}))
    hub = make_hub()
    assert fetch_url(address(endpoint), hub).read_bytes() == content
    assert "no part from there on" in hub.__dict__["notes"][-1]


def test_a_tag_that_no_request_can_have(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes
) -> None:
    tagged(endpoint, '"\xe9"')
    path = fetch_url(address(endpoint), make_hub())
    assert path.read_bytes() == content
    assert fetch_url(address(endpoint), make_hub()) == path


def test_a_server_without_ranges_is_given_up(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, waits: list[float]
) -> None:
    endpoint.ranges = False
    for after in (1000, 500) * 10:
        endpoint.cut("mmproj", after)
    with pytest.raises(HubError, match="cannot get mmproj-F16") as caught:
        fetch_url(address(endpoint), make_hub())
    assert (caught.value.status, len(waits)) == (0, 6)


@pytest.mark.parametrize(("code", "hint"), [(errno.ENOSPC, "free some"), (errno.EACCES, "check its rights")])
def test_a_folder_that_cannot_be_written(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    def no(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", no)
    with pytest.raises(HubError, match=r"cannot use the cache|is full") as caught:
        fetch_url(address(endpoint), make_hub())
    assert caught.value.hint and caught.value.hint.startswith(hint) and "DFLASH_CACHE" in caught.value.hint


def test_a_cache_that_can_only_be_read(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is kept is used, as without a network."""
    tagged(endpoint, '"one"')
    path = fetch_url(address(endpoint), make_hub())

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    hub = make_hub()
    assert fetch_url(address(endpoint), hub) == path and path.read_bytes() == content
    (note,) = hub.__dict__["notes"]
    assert note.endswith("Read-only file system; using the one that was downloaded before")
    path.unlink()
    with pytest.raises(HubError, match=r"cannot use the cache .*: Read-only file system"):
        fetch_url(address(endpoint), make_hub())


@pytest.mark.parametrize("offline", [False, True])
def test_a_folder_that_cannot_be_searched(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    def no(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "is_file", no)
    with pytest.raises(HubError, match="cannot use the cache") as caught:
        fetch_url(address(endpoint), make_hub(offline=offline))
    assert caught.value.hint and caught.value.hint.startswith("check its rights, or point DFLASH_CACHE")


def test_a_password_in_an_address_is_not_shown(
    endpoint: StandIn, files: dict[str, bytes], make_hub: Make, waits: list[float]
) -> None:
    url = address(endpoint).replace("//", "//me:secret@")
    endpoint.fault("mmproj", refuse(404))
    endpoint.fault("mmproj", refuse(503), times=100)
    for hub in (make_hub(), make_hub(), make_hub(offline=True)):
        with pytest.raises(HubError) as caught:
            fetch_url(url, hub)
        assert "secret" not in str(caught.value) + str(hub.__dict__["notes"])
    for wrong in ("ftp://me:secret@host/a.gguf", "http://me:12#secret@host/a.gguf", "http://me:secret/@host/a.gguf"):
        with pytest.raises(RequestError, match="host/a") as refused:
            fetch_url(wrong, make_hub())
        assert "secret" not in str(refused.value)
