"""Files from the Hub into the cache: whole, checked, once, and one clear error for each fault."""

from __future__ import annotations

import base64
import errno
import gzip
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dflash_local.errors import HubError
from dflash_local.hub import client, http_session, transport
from dflash_local.hub.blob_part import BlobPart
from dflash_local.hub.cache import Cache
from dflash_local.hub.client import Hub
from dflash_local.hub.http_session import reason_of
from dflash_local.hub.transport import Transport
from tests.patience import PATIENCE

from .stand_in import COMMIT, TOKEN, StandIn, answer_request, refuse, send, sha256

MODEL = bytes(range(256)) * 9000  # more than two chunks
REPO = "user/Model-GGUF"
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def repository(endpoint: StandIn) -> None:
    endpoint.add(REPO, {"README.md": b"# model\n", "sub/model-Q8_0.gguf": MODEL})


def blobs(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("models--*/blobs/*"))


def download(hub: Hub, path: str = "sub/model-Q8_0.gguf") -> Path:
    (file,) = (file for file in hub.files(REPO) if file.path == path)
    return hub.download([file])[0]


def test_the_layout_is_llama_cpps(make_hub: Make, cache_folder: Path, endpoint: StandIn) -> None:
    path = download(make_hub())
    home = cache_folder / "models--user--Model-GGUF"
    assert path == home / "snapshots" / COMMIT / "sub" / "model-Q8_0.gguf"
    assert path.read_bytes() == MODEL
    assert path.readlink() == Path("../../../blobs") / sha256(MODEL)
    assert (home / "refs" / "main").read_text() == COMMIT
    assert blobs(cache_folder) == [sha256(MODEL)]
    # A file that is no LFS file: named by git's hash, which is checked as well.
    readme = download(make_hub(), "README.md")
    assert readme.read_bytes() == b"# model\n" and len(readme.resolve().name) == 40
    assert [path for path in endpoint.paths("cdn") if "README" in path] == []


def test_huggingface_hub_finds_it_and_the_reverse(make_hub: Make, cache_folder: Path, endpoint: StandIn) -> None:
    from huggingface_hub import hf_hub_download, snapshot_download

    ours = download(make_hub())
    theirs = hf_hub_download(REPO, "sub/model-Q8_0.gguf", cache_dir=cache_folder, local_files_only=True)
    assert Path(theirs) == ours
    folder = snapshot_download(REPO, cache_dir=cache_folder, local_files_only=True)
    assert Path(folder) == cache_folder / "models--user--Model-GGUF" / "snapshots" / COMMIT

    # As llama.cpp and huggingface_hub leave a file: another commit has the same blob.
    endpoint.repositories[REPO].commit = "b" * 40
    before = endpoint.fetched()
    assert download(make_hub()).read_bytes() == MODEL
    assert endpoint.fetched() == before


def test_a_file_that_llama_cpp_downloaded(make_hub: Make, cache_folder: Path, endpoint: StandIn) -> None:
    snapshot = cache_folder / "models--user--Model-GGUF" / "snapshots" / COMMIT / "sub"
    snapshot.mkdir(parents=True)
    (snapshot / "model-Q8_0.gguf").write_bytes(MODEL)  # without symlinks it moves the blob here
    assert download(make_hub()) == snapshot / "model-Q8_0.gguf"
    assert endpoint.fetched() == 0


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_cut_connection_is_taken_up(make_hub: Make, endpoint: StandIn, waits: list[float], reset: bool) -> None:
    endpoint.cut(r"model", after=1000, times=2, reset=reset)
    assert download(make_hub()).read_bytes() == MODEL
    ranges = [request.range for request in endpoint.requests if request.host == "cdn"]
    assert len(ranges) == 3 and ranges[0] == f"bytes=0-{len(MODEL) - 1}"
    if not reset:  # a reset may drop bytes that were under way
        assert ranges[1:] == [f"bytes=1000-{len(MODEL) - 1}", f"bytes=2000-{len(MODEL) - 1}"]


def test_the_next_process_takes_up_what_was_left(
    make_hub: Make, endpoint: StandIn, cache_folder: Path, waits: list[float]
) -> None:
    endpoint.cut(r"model", after=700_000)
    endpoint.fault(r"resolve", refuse(503), times=50)
    # The redirect itself works once.
    endpoint.faults.reverse()
    left = [1]
    endpoint.faults.insert(0, lambda handler, request: _first_redirect(left, endpoint, handler, request))
    with pytest.raises(HubError, match="the server answered 503"):
        download(make_hub())
    assert blobs(cache_folder) == [f"{sha256(MODEL)}.dflash.incomplete"]
    endpoint.faults.clear()
    hub = make_hub()
    assert download(hub).read_bytes() == MODEL
    assert endpoint.requests[-1].range == f"bytes=700000-{len(MODEL) - 1}"
    assert hub.notes == ["model-Q8_0.gguf: going on at 700.0 kB of 2.3 MB, once these are checked"]
    assert blobs(cache_folder) == [sha256(MODEL)]


def test_what_is_there_is_checked_after_a_word(
    make_hub: Make, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of gigabytes takes a while."""
    part = cache_folder / "models--user--Model-GGUF" / "blobs" / f"{sha256(MODEL)}.dflash.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(MODEL)
    hub = make_hub()
    said: list[list[str]] = []

    def checked(*arguments: Any, **options: Any) -> BlobPart:
        said.append(list(hub.notes))
        return BlobPart(*arguments, **options)

    monkeypatch.setattr(client, "BlobPart", checked)
    assert download(hub).read_bytes() == MODEL
    assert said == [["model-Q8_0.gguf: going on at 2.3 MB of 2.3 MB, once these are checked"]]


def _first_redirect(left: list[int], endpoint: StandIn, handler: Any, request: Any) -> bool:
    if "resolve" in request.path and left[0]:
        left[0] -= 1
        answer_request(handler, endpoint, request)
        return True
    return False


def test_a_server_without_ranges(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    endpoint.ranges = False
    endpoint.cut(r"model", after=5000)
    assert download(make_hub()).read_bytes() == MODEL


def test_a_connection_that_brings_nothing_is_given_up(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    endpoint.cut(r"model", after=0, times=100)
    with pytest.raises(HubError, match="cannot get sub/model") as caught:
        download(make_hub())
    assert caught.value.hint and "--offline" in caught.value.hint
    assert len(waits) == 5 and max(waits) <= 8


def test_a_wrong_hash_leaves_nothing(make_hub: Make, endpoint: StandIn, cache_folder: Path) -> None:
    endpoint.repositories[REPO].announced["sub/model-Q8_0.gguf"] = "0" * 64
    with pytest.raises(HubError, match="arrived with the hash"):
        download(make_hub())
    assert blobs(cache_folder) == []
    assert list(cache_folder.glob("**/snapshots/**/*.gguf")) == []
    endpoint.repositories[REPO].announced = {"README.md": "0" * 40}
    with pytest.raises(HubError, match="arrived with the hash"):
        download(make_hub(), "README.md")


def test_a_spoilt_part_is_begun_anew(make_hub: Make, endpoint: StandIn, cache_folder: Path) -> None:
    part = cache_folder / "models--user--Model-GGUF" / "blobs" / f"{sha256(MODEL)}.dflash.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"rubbish" * 1000)
    assert download(make_hub()).read_bytes() == MODEL
    part.write_bytes(MODEL * 2)  # longer than the file
    (cache_folder / "models--user--Model-GGUF" / "blobs" / sha256(MODEL)).unlink()
    assert download(make_hub()).read_bytes() == MODEL


def test_the_token_goes_to_the_hub_alone(make_hub: Make, endpoint: StandIn) -> None:
    endpoint.repositories[REPO].gated = True
    assert download(make_hub(token=TOKEN)).read_bytes() == MODEL
    seen = {(request.host, request.authorization) for request in endpoint.requests}
    assert seen == {("hub", f"Bearer {TOKEN}"), ("cdn", None)}


@pytest.mark.parametrize(
    ("variable", "value"), [("HF_TOKEN", TOKEN), ("HUGGING_FACE_HUB_TOKEN", TOKEN)], ids=["HF_TOKEN", "older"]
)
def test_tokens_of_the_environment(
    make_hub: Make, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    download(make_hub())
    assert endpoint.requests[0].authorization == f"Bearer {TOKEN}"


def with_user(endpoint: StandIn) -> str:
    return endpoint.endpoint.replace("//", "//me:secret@")


def test_a_user_of_the_endpoint(make_hub: Make, endpoint: StandIn) -> None:
    """A mirror's links have none."""
    endpoint.page_length = 1
    hub = make_hub(endpoint=with_user(endpoint))
    assert download(hub).read_bytes() == MODEL
    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    assert {(request.host, request.authorization) for request in endpoint.requests} == {("hub", basic), ("cdn", None)}


def test_a_user_and_a_token(make_hub: Make, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    download(make_hub())  # the cache is no way round it
    endpoint.requests.clear()
    hubs = [make_hub(endpoint=with_user(endpoint), token=TOKEN)]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hubs.append(make_hub(endpoint=with_user(endpoint)))
    for hub in hubs:
        error = failure(hub)
        assert "a request can have only one of them" in error.message
        assert error.hint and "HF_ENDPOINT" in error.hint and "--hf-token" in error.hint
        assert "secret" not in str(error) and TOKEN not in str(error) and hub.notes == []
    assert endpoint.requests == []


def send_elsewhere(handler: Any) -> None:
    send(handler, 200, [], {"Link": '<http://me:secret@elsewhere/next>; rel="next"'})


def send_in_circles(handler: Any) -> None:
    send(handler, 200, [], {"Link": f'<http://me:secret@{handler.headers["Host"]}{handler.path}>; rel="next"'})


def redirect_for_ever(handler: Any) -> None:
    send(handler, 302, b"", {"Location": handler.path})


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        ("refs", refuse(503), "the server answered 503"),
        ("refs", refuse(404), "is not on the Hub"),
        ("refs", refuse(418), "the Hub answered 418"),
        ("refs", refuse(401, "GatedRepo"), "is gated"),
        ("refs", redirect_for_ever, "redirects"),
        ("refs", lambda handler: send(handler, 200, b"<html>"), "did not answer with JSON"),
        ("refs", refuse(200), "has no revision"),
        ("tree", lambda handler: send(handler, 200, []), "is empty"),
        ("tree", send_elsewhere, "goes on at another host, http://elsewhere"),
        ("tree", send_in_circles, "has no end"),
    ],
)
def test_a_password_of_the_endpoint_is_not_shown(
    make_hub: Make, endpoint: StandIn, waits: list[float], path: str, answer: Callable[[Any], None], says: str
) -> None:
    endpoint.fault(path, answer, times=1000)
    hub = make_hub(endpoint=with_user(endpoint))
    error = failure(hub)
    assert says in error.message
    assert "secret" not in f"{error} {hub.notes} {hub} {hub._transport}"


def test_a_token_is_not_shown(make_hub: Make) -> None:
    hub = make_hub(token=TOKEN)
    assert TOKEN not in f"{hub} {hub._transport}"


def failure(hub: Hub, repo: str = REPO) -> HubError:
    with pytest.raises(HubError) as caught:
        hub.download(hub.files(repo))
    return caught.value


def test_gated_without_and_with_a_token(make_hub: Make, endpoint: StandIn) -> None:
    endpoint.repositories[REPO].gated = True
    error = failure(make_hub())
    assert (error.message, error.status) == (f"{REPO} is gated", 401)
    assert error.hint and f"accept its terms at {endpoint.endpoint}/{REPO}, then give a token: HF_TOKEN" in error.hint
    error = failure(make_hub(token="hf_" + "y" * 34))
    assert (error.message, error.status) == (f"{REPO} is gated", 403)
    assert error.hint and "with the account of your token" in error.hint and "hf_" not in str(error)


def test_a_repository_that_is_not_there(make_hub: Make) -> None:
    error = failure(make_hub(), "user/None")
    assert error.message == "user/None does not exist, or is private or gated"
    error = failure(make_hub(token=TOKEN), "user/None")
    assert (error.message, error.status) == ("user/None is not on the Hub", 404)


def test_a_revision_that_is_not_there(make_hub: Make) -> None:
    with pytest.raises(HubError, match="has no revision 'v2'"):
        make_hub().files(REPO, "v2")
    with pytest.raises(HubError, match="has no such revision"):
        make_hub().files(REPO, "c" * 40)


def test_revisions(make_hub: Make, endpoint: StandIn, cache_folder: Path) -> None:
    repo = endpoint.repositories[REPO]
    repo.branches, repo.older = {"dev": "d" * 40, "main": COMMIT}, ("9a1996cc" + "0" * 32, "d" * 40)
    hub = make_hub()
    for revision, commit in ((None, COMMIT), ("dev", "d" * 40)):
        files = hub.files(REPO, revision)
        assert files[0].commit == commit
        hub.download(files)
    assert hub.files(REPO, "9a1996cc")[0].commit == "9a1996cc" + "0" * 32
    assert hub.files(REPO, "D" * 40)[0].commit == "d" * 40
    refs = cache_folder / "models--user--Model-GGUF" / "refs"
    assert {path.name: path.read_text() for path in refs.iterdir()} == {"main": COMMIT, "dev": "d" * 40}
    repo.branches = {"trunk": COMMIT}
    assert hub.files(REPO)[0].commit == COMMIT  # no main: the first branch, as upstream
    # A pull request, of which the Hub tells only if asked.
    repo.proposed = {"refs/pr/1": "e" * 40}
    repo.older = (*repo.older, "e" * 40)
    assert hub.files(REPO, "refs/pr/1")[0].commit == "e" * 40
    with pytest.raises(HubError, match="has no revision 'refs/pr/2'"):
        hub.files(REPO, "refs/pr/2")
    # A pinned revision is found again without the network.
    hub.download(hub.files(REPO, "9a1996cc"))
    assert Hub(offline=True).files(REPO, "9A1996CC")[0].commit.startswith("9a1996cc")


@pytest.mark.parametrize("revision", ["a", "f16", "bad", "9a1996", "9a1996cx", "9a1996cc" + "0" * 33])
def test_what_is_no_beginning_of_a_commit(make_hub: Make, endpoint: StandIn, revision: str) -> None:
    commits = ("9a1996cc" + "0" * 32, "bad" + "0" * 37, "f16" + "0" * 37)
    endpoint.repositories[REPO].older = commits
    hub = make_hub()
    for commit in (COMMIT, *commits):
        hub.download([file for file in hub.files(REPO, commit) if file.path == "README.md"])
    for asked in (hub, make_hub(offline=True)):
        with pytest.raises(HubError, match=r"has no revision|is not in the cache"):
            asked.files(REPO, revision)
    assert not any("/commits/" in path for path in endpoint.paths())


def test_listings_in_pages(make_hub: Make, endpoint: StandIn) -> None:
    endpoint.page_length = 2
    endpoint.add("user/Many", {f"f{n}.txt": b"%d" % n for n in range(7)})
    assert [file.path for file in make_hub().files("user/Many")] == [f"f{n}.txt" for n in range(7)]


def test_a_listing_cannot_lead_out_of_the_cache(make_hub: Make, endpoint: StandIn) -> None:
    bad = {"../evil.gguf": b"1", "/etc/evil.gguf": b"2", "a/../../evil.gguf": b"3", "good.gguf": b"4"}
    bad["C:/evil.gguf"] = b"5"  # on Windows another drive
    repo = endpoint.add("user/Evil", bad, branches={"../../main": COMMIT, "main": COMMIT})
    assert [file.path for file in make_hub().files("user/Evil")] == ["good.gguf"]
    repo.announced = {"good.gguf": "../../../../evil"}
    with pytest.raises(HubError, match="is empty"):
        make_hub().files("user/Evil")


def test_an_answer_that_goes_on_elsewhere(make_hub: Make, endpoint: StandIn) -> None:
    def answer(handler: Any) -> None:
        send(handler, 200, [], {"Link": '<http://elsewhere.invalid/next>; rel="next"'})

    endpoint.fault("tree", answer)
    with pytest.raises(HubError, match=r"goes on at another host, http://elsewhere"):
        make_hub().files(REPO)


def test_an_answer_that_goes_on_at_itself(make_hub: Make, endpoint: StandIn) -> None:
    def answer(handler: Any) -> None:
        send(handler, 200, [], {"Link": f'<{endpoint.endpoint}{handler.path}>; rel="next"'})

    endpoint.fault("tree", answer, times=5)
    assert "has no end" in failure(make_hub()).message


def test_no_hub_at_the_endpoint(make_hub: Make, endpoint: StandIn) -> None:
    endpoint.fault("refs", lambda handler: refuse(200)(handler))
    assert failure(make_hub()).message.startswith(f"{REPO} has no revision 'main'")


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"RateLimit": '"api";r=0;t=11'}, 11.0),
        ({}, 1.0),
        ({"Retry-After": "0"}, 1.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1.0),
    ],
    ids=["Retry-After", "RateLimit", "nothing", "at once", "past"],
)
@pytest.mark.parametrize("where", ["refs", "resolve"])
def test_a_limit_is_waited_for(
    make_hub: Make, endpoint: StandIn, waits: list[float], headers: dict[str, str], waited: float, where: str
) -> None:
    endpoint.fault(where, refuse(429, headers=headers))
    assert download(make_hub()).read_bytes() == MODEL
    assert waits == [waited]


def test_a_limit_has_limits(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    endpoint.fault("refs", refuse(429, headers={"Retry-After": "3600"}))
    error = failure(make_hub())
    assert (error.message, error.status) == ("the Hub limits requests and asks to wait 3600 s", 429)
    assert error.hint and "HF_TOKEN" in error.hint
    endpoint.fault("refs", refuse(429, headers={"Retry-After": "60"}), times=100)
    assert "limits requests for 60 s" in failure(make_hub()).message
    assert waits == [60.0] * 3


def test_a_busy_server(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    endpoint.fault("tree", refuse(502), times=3)
    assert download(make_hub()).read_bytes() == MODEL
    assert waits == [1.0, 2.0, 4.0]


def test_nobody_listens(make_hub: Make, waits: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        hub = make_hub(endpoint=address)
        assert f"cannot get {REPO} from {address}" in failure(hub).message
        assert waits == [1.0, 2.0, 4.0]
        error = failure(hub, "user/Other")
        assert error.status == 0 and error.message.startswith(f"cannot get user/Other from {address}: ")
        assert len(waits) == 3  # it is not waited for again


def test_without_the_hub_the_cache_serves(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    path = download(make_hub())
    endpoint.fault("refs", refuse(401, "RepoNotFound"))
    hub = make_hub()
    assert download(hub) == path
    assert hub.notes == [f"{REPO} does not exist, or is private or gated; using what the cache has of {REPO}"]


@pytest.mark.parametrize("status", [200, 401, 403, 404, 418, 429, 503])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "3600"}])
def test_after_any_refusal_the_cache_serves(
    make_hub: Make, endpoint: StandIn, waits: list[float], status: int, headers: dict[str, str]
) -> None:
    path = download(make_hub())
    endpoint.fault("refs", refuse(status, headers=headers), times=100)
    hub = make_hub()
    assert download(hub) == path
    assert hub.notes[-1].endswith(f"; using what the cache has of {REPO}")


def test_the_cache_serves_only_where_an_error_says_so() -> None:
    assert not HubError("refused", status=404).cache_may_serve


def test_a_refusal_is_of_one_repository(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    endpoint.fault("user/Other/refs", refuse(503), times=100)
    hub = make_hub()
    assert failure(hub, "user/Other").status == 503
    assert download(hub).read_bytes() == MODEL
    assert hub.notes == ["user/Other: the server answered 503; trying again"] * 3


def compress_badly(handler: Any) -> None:
    send(handler, 200, b"no gzip", {"Content-Encoding": "gzip"})


@pytest.mark.parametrize("answer", [redirect_for_ever, compress_badly])
def test_a_network_that_answers_for_the_hub(
    make_hub: Make, endpoint: StandIn, waits: list[float], answer: Callable[[Any], None]
) -> None:
    path = download(make_hub())
    endpoint.fault("", answer, times=1000)
    hub = make_hub()
    assert download(hub) == path
    assert "using what the cache has" in hub.notes[0]
    error = failure(make_hub(), "user/Other")
    assert (error.status, error.cache_may_serve, waits) == (None, True, [])
    assert error.hint and "login page" in error.hint


@pytest.mark.parametrize("token", ["hf_secret\n", "hf_secret\r\nX: y", " hf_secret", "hf_se cret", "hf_sécret"])
def test_a_token_that_no_header_can_have(
    make_hub: Make, endpoint: StandIn, waits: list[float], token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    download(make_hub())  # the cache is no way round it
    endpoint.requests.clear()
    hub = make_hub(token=token)
    error = failure(hub)
    assert error.message == "the Hub's token has characters that no header can have"
    assert error.hint and "--hf-token" in error.hint and "cret" not in str(error)
    assert (endpoint.requests, waits, hub.notes) == ([], [], [])


@pytest.mark.parametrize("fault", [PermissionError(errno.EACCES, "denied"), UnicodeDecodeError("utf-8", b"", 0, 1, "")])
def test_a_token_file_that_cannot_be_read(
    make_hub: Make, endpoint: StandIn, waits: list[float], monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    import huggingface_hub

    def get_token() -> str:
        raise fault

    monkeypatch.setattr(huggingface_hub, "get_token", get_token)
    error = failure(make_hub())
    assert error.message.startswith("the file of the Hub's token cannot be read")
    assert error.hint and "hf auth login" in error.hint and (endpoint.requests, waits) == ([], [])


def test_a_request_that_http_does_not_allow(
    make_hub: Make, endpoint: StandIn, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transport, "_headers", {"Authorization": "Bearer secret\n"})
    hub = make_hub()
    error = failure(hub)
    assert error.message == f"cannot get {REPO} from {endpoint.endpoint}: HTTP allows no such request"
    assert "secret" not in str(error) and (waits, hub.notes) == ([], [])


@pytest.mark.parametrize("headers", [{}, {"Content-Range": "bytes 5-12/8"}, {"Content-Range": "bytes */8"}])
def test_another_part_than_was_asked_for(
    make_hub: Make, endpoint: StandIn, waits: list[float], headers: dict[str, str]
) -> None:
    endpoint.fault("resolve", lambda handler: send(handler, 206, b"# wrong\n", headers))
    hub = make_hub()
    assert download(hub, "README.md").read_bytes() == b"# model\n"
    assert hub.notes == ["README.md: the server sent another part than it was asked for; trying again"]


def test_a_compressed_file(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    packed = gzip.compress(b"# model\n")
    endpoint.fault("resolve", lambda handler: send(handler, 200, packed, {"Content-Encoding": "gzip"}))
    with pytest.raises(HubError, match=r"README\.md: the file came compressed"):
        download(make_hub(), "README.md")
    assert waits == []


def test_a_part_of_a_listing(make_hub: Make, endpoint: StandIn) -> None:
    endpoint.fault("tree", refuse(206))
    assert failure(make_hub()).message == f"{REPO}: the Hub answered 206 Partial Content"


@pytest.mark.parametrize("status", [300, 302, 304, 307])
def test_a_redirect_that_leads_nowhere(make_hub: Make, endpoint: StandIn, waits: list[float], status: int) -> None:
    endpoint.fault("refs", refuse(status))
    error = failure(make_hub())
    assert error.message.startswith(f"{REPO}: the Hub answered {status} ")
    assert (error.status, error.hint, waits) == (status, f"see {endpoint.endpoint}/{REPO}", [])


def test_a_server_that_is_silent(
    make_hub: Make, endpoint: StandIn, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_session, "TIMEOUT", 0.05)
    end = threading.Event()

    def say_nothing(handler: Any) -> None:
        end.wait(PATIENCE)

    endpoint.fault("refs", say_nothing, times=100)
    hub = make_hub()
    error = failure(hub)
    end.set()
    assert error.message == f"cannot get {REPO} from {endpoint.endpoint}: it was silent for 0.05 s"
    assert hub.notes == [f"{REPO}: it was silent for 0.05 s; trying again"] * 3


def test_every_timeout_says_what_happened() -> None:
    import httpx

    for kind in httpx.TimeoutException.__subclasses__():
        for words in ("", "timed out"):
            seconds = "within 5 s" if kind is httpx.ConnectTimeout else "for 30 s"
            assert reason_of(kind(words)).endswith(f" {seconds}")


def test_a_firewall_that_drops_packets(make_hub: Make, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached model starts within seconds: a host may have several addresses, which are all tried each time."""
    import httpx

    asked: list[float] = []

    def drop(*_: Any, timeout: Any, **__: Any) -> None:
        asked.append(httpx.Timeout(timeout).connect or 0)
        raise httpx.ConnectTimeout("timed out")

    path = download(make_hub())
    monkeypatch.setattr(transport, "open_session", type("Dropping", (httpx.Client,), {"stream": drop}))
    hub = make_hub()
    assert download(hub) == path
    assert asked == [5.0, 5.0] and hub.notes[-1].endswith(f"within 5 s; using what the cache has of {REPO}")
    asked.clear()
    assert failure(make_hub(), "user/Other").message.endswith("no connection within 5 s")
    assert len(asked) == 4


def test_a_busy_hub_is_asked_as_often_with_a_cache(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    """What the cache has may be older, or another type: it is for where nothing can be reached."""
    download(make_hub())
    endpoint.repositories[REPO].commit = "b" * 40
    endpoint.fault("refs", refuse(503), times=3)
    assert {file.commit for file in make_hub().files(REPO)} == {"b" * 40}


def test_a_branch_leads_to_what_was_downloaded_last(make_hub: Make, endpoint: StandIn, waits: list[float]) -> None:
    """A listing, or a download that fails, hides nothing from a later start without the network."""
    path = download(make_hub())
    endpoint.repositories[REPO].commit, old = "b" * 40, endpoint.repositories[REPO].files
    endpoint.repositories[REPO].files = old | {"sub/model-Q8_0.gguf": MODEL[::-1], "small.txt": b"small"}
    endpoint.cut("model", after=0, times=100)
    failure(make_hub())
    hub = make_hub()
    hub.download([file for file in hub.files(REPO) if file.path == "small.txt"], keeps_refs=False)
    assert download(make_hub(offline=True)) == path
    endpoint.faults.clear()
    newest = download(make_hub())
    assert newest != path and newest == download(make_hub(offline=True))
    # And if nothing of the commit was missing.
    endpoint.repositories[REPO].commit, endpoint.repositories[REPO].files = COMMIT, old
    assert download(make_hub()) == download(make_hub(offline=True)) == path


def test_a_cache_that_takes_no_branch_serves_what_it_has(make_hub: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = download(make_hub())

    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Cache, "keep_ref", no)
    hub = make_hub()
    assert download(hub) == path
    assert hub.notes[0].startswith("cannot use the cache") and hub.notes[0].endswith(f"has of {REPO}")
    shutil.rmtree(path.parents[2])
    assert failure(make_hub()).message.startswith("cannot use the cache")


@pytest.mark.parametrize("body", [b"<html>", b"[" * 200_000, b"\xff{}"], ids=["page", "deep", "no text"])
def test_an_answer_that_is_no_json(make_hub: Make, endpoint: StandIn, body: bytes) -> None:
    path = download(make_hub())
    endpoint.fault("refs", lambda handler: send(handler, 200, body), times=2)
    hub = make_hub()
    assert download(hub) == path and "did not answer with JSON; using what the cache has" in hub.notes[0]
    error = failure(hub, "user/Other")
    assert error.hint == "is HF_ENDPOINT or MODEL_ENDPOINT the address of a Hub?"


@pytest.mark.parametrize("address", ["http://127.0.0.1:x", "http://[::1", "http://a..b", "http://me:xyz#xyz@host"])
def test_an_endpoint_that_is_no_address(make_hub: Make, waits: list[float], address: str) -> None:
    path = download(make_hub())
    hub = make_hub(endpoint=address)
    assert download(hub) == path
    error = failure(hub, "user/Other")
    assert error.hint and "HF_ENDPOINT" in error.hint and waits == []
    assert error.status is None and error.cache_may_serve and "xyz" not in f"{error} {hub.notes} {hub.address}"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://me:12#xyz@a:70", "http://me:xyz#xyz@a"])
def test_a_proxy_that_cannot_be_used(make_hub: Make, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    from huggingface_hub import close_session

    path = download(make_hub())
    monkeypatch.setitem(sys.modules, "socksio", None)  # httpx needs it for SOCKS
    monkeypatch.setenv("all_proxy", proxy)
    close_session()
    hub = make_hub()
    assert download(hub) == path
    error = failure(hub, "user/Other")
    assert error.status is None and error.cache_may_serve and error.hint and "ALL_PROXY" in error.hint
    assert "xyz" not in f"{error} {hub.notes}"


@pytest.mark.parametrize("how", ["flag", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_socket(
    make_hub: Make, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, how: str, cache_folder: Path
) -> None:
    path = download(make_hub())
    (other,) = (file for file in make_hub().files(REPO) if file.path == "README.md")
    endpoint.requests.clear()
    if how != "flag":
        monkeypatch.setenv(how, "1")
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(socket, "create_connection", None)
    hub = make_hub(offline=how == "flag")
    assert download(hub) == path
    assert hub.read(hub.files(REPO)[0], 0, 4) == MODEL[:4]
    calls: list[Callable[[], Any]] = [
        lambda: hub.files("user/Other"),
        lambda: hub.download([other]),
        lambda: hub.read(other, 0, 4),
    ]
    for call in calls:
        with pytest.raises(HubError, match="offline mode is on"):
            call()
    assert endpoint.requests == []


def test_offline_imports_no_client(tmp_path: Path, cache_folder: Path) -> None:
    code = (
        "import sys\nfrom dflash_local.hub.client import Hub\nfrom dflash_local.errors import HubError\n"
        "try: Hub(offline=True).files('a/b')\nexcept HubError as e: print(e.message)\n"
        "print([m for m in ('huggingface_hub', 'httpx', 'httpx2', 'requests') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == f"a/b is not in the cache {cache_folder}, and offline mode is on\n[]\n"


def test_headers_by_ranges(make_hub: Make, endpoint: StandIn, cache_folder: Path) -> None:
    hub = make_hub()
    (file,) = (file for file in hub.files(REPO) if file.path.endswith("gguf"))
    assert hub.read(file, 0, 1000) == MODEL[:1000]
    assert endpoint.requests[-1].range == "bytes=0-999"
    assert hub.read(file, 0, 10**9) == MODEL
    assert hub.read(file, 900, 1000) == MODEL[900:1000]
    assert endpoint.requests[-1].range == "bytes=900-999"
    endpoint.ranges = False
    assert hub.read(file, 0, 1000) == MODEL[:1000]
    assert blobs(cache_folder) == []


def test_progress(make_hub: Make) -> None:
    seen: list[tuple[str, int, int]] = []
    download(make_hub(progress=lambda *step: seen.append(step)))
    assert seen[0] == ("model-Q8_0.gguf", 0, len(MODEL)) and seen[-1] == ("model-Q8_0.gguf", len(MODEL), len(MODEL))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_disk_that_is_too_small(make_hub: Make, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    error = failure(make_hub())
    assert "1.0 kB free, 2.3 MB needed" in error.message
    assert error.hint and "LLAMA_CACHE" in error.hint
    assert endpoint.fetched() == 0


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() then fails with EFBIG, as with ENOSPC on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
from dflash_local.hub.client import Hub
hub = Hub()
try:
    hub.download([file for file in hub.files("user/Model-GGUF") if file.path.endswith("gguf")])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_disk_that_fills_up(make_hub: Make, endpoint: StandIn, cache_folder: Path) -> None:
    run = subprocess.run([sys.executable, "-c", FULL_DISK], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"HubError the disk of {cache_folder} is full (")
    assert "kept in" in run.stdout and "(fix: free some" in run.stdout and run.stdout.count("\n") == 1
    assert list(cache_folder.glob("**/snapshots/**/*.gguf")) == []
    assert blobs(cache_folder) == [f"{sha256(MODEL)}.dflash.incomplete"]
    assert download(make_hub()).read_bytes() == MODEL  # on a disk with room, it goes on


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES], ids=["full", "no rights"])
def test_a_cache_that_cannot_be_written(make_hub: Make, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    hub = make_hub()
    files = hub.files(REPO)

    def no(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", no)
    with pytest.raises(HubError, match="is full" if code == errno.ENOSPC else "cannot use the cache"):
        hub.download(files)


def test_a_cache_that_cannot_be_searched(make_hub: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long stops root too."""
    hub = make_hub()
    files = hub.files(REPO)
    lost = Cache(Path("x" * 300))
    calls: list[Callable[[Hub], Any]] = [
        lambda hub: hub.download(files),
        lambda hub: hub.read(files[0], 0, 4),
        lambda hub: hub.files(REPO),
    ]
    for call in calls:
        with pytest.raises(HubError, match="cannot use the cache xxx"):
            call(make_hub(cache=lost))


@pytest.mark.parametrize("offline", [False, True])
def test_a_cache_whose_files_cannot_be_searched(
    make_hub: Make, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    def no(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    download(make_hub())
    endpoint.fault("refs", refuse(404))
    monkeypatch.setattr(Path, "is_file", no)
    assert failure(make_hub(offline=offline)).message.startswith("cannot use the cache")


def test_a_link_that_an_earlier_process_left(make_hub: Make, cache_folder: Path) -> None:
    folder = cache_folder / "models--user--Model-GGUF" / "snapshots" / COMMIT / "sub"
    folder.mkdir(parents=True)
    (folder / f"model-Q8_0.gguf.{os.getpid()}.link").symlink_to("nowhere")
    assert download(make_hub()).is_symlink() and blobs(cache_folder) == [sha256(MODEL)]


@pytest.mark.parametrize(
    ("code", "moved"), [(errno.EPERM, True), (errno.EOPNOTSUPP, True), (errno.EEXIST, False), (errno.ENOSPC, False)]
)
def test_a_blob_is_moved_only_where_there_are_no_links(
    make_hub: Make, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, moved: bool
) -> None:
    def no(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    hub = make_hub()
    files = [file for file in hub.files(REPO) if file.path.endswith("gguf")]
    monkeypatch.setattr(Path, "symlink_to", no)
    if moved:
        path = hub.download(files)[0]
        assert path.read_bytes() == MODEL and not path.is_symlink() and blobs(cache_folder) == []
    else:
        with pytest.raises(HubError, match=str(cache_folder)):
            hub.download(files)
        assert blobs(cache_folder) == [sha256(MODEL)]


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_blob_that_others_may_link_to_stays(
    make_hub: Make, endpoint: StandIn, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    """As on Windows, where a program with more rights has downloaded the file and made links."""

    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    theirs = download(make_hub())
    monkeypatch.setattr(Path, "symlink_to", no)
    if not hard_links:
        monkeypatch.setattr(os, "link", no)
    endpoint.repositories[REPO].commit = "b" * 40
    before = endpoint.fetched()
    ours = download(make_hub())
    assert ours != theirs and not ours.is_symlink()
    assert ours.read_bytes() == theirs.read_bytes() == MODEL
    assert ours.samefile(theirs) == hard_links
    assert (blobs(cache_folder), endpoint.fetched()) == ([sha256(MODEL)], before)


def test_a_copy_that_fails_leaves_nothing(
    make_hub: Make, endpoint: StandIn, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def fill(source: Path, path: Path) -> None:
        path.write_bytes(source.read_bytes()[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    download(make_hub())
    monkeypatch.setattr(Path, "symlink_to", no)
    monkeypatch.setattr(os, "link", no)
    monkeypatch.setattr(shutil, "copyfile", fill)
    endpoint.repositories[REPO].commit = "b" * 40
    with pytest.raises(HubError, match="is full"):
        download(make_hub())
    assert not list((cache_folder / "models--user--Model-GGUF" / "snapshots" / ("b" * 40) / "sub").iterdir())


TWO_PROCESSES = """
from dflash_local.hub.client import Hub
hub = Hub(note=print)
files = [file for file in hub.files("user/Model-GGUF") if file.path.endswith("gguf")]
print(hub.download(files)[0].read_bytes() == bytes(range(256)) * 9000)
"""


def test_two_processes_download_once(endpoint: StandIn, cache_folder: Path) -> None:
    """The file comes only when the second process has said that it waits, however long that takes."""
    waits = threading.Event()

    def late(handler: Any, request: Any) -> bool:
        if request.host == "cdn":
            waits.wait(60)
        return False

    def listen(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "waiting for it" in line:
                waits.set()
        return said

    endpoint.faults.append(late)
    command = [sys.executable, "-u", "-c", TWO_PROCESSES]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        out = sorted(pool.map(listen, both))
    assert [process.wait(60) for process in both] == [0, 0]
    assert out == ["True\n", "another process downloads model-Q8_0.gguf: waiting for it\nTrue\n"]
    assert endpoint.fetched() == 1
    assert blobs(cache_folder) == [sha256(MODEL)]
