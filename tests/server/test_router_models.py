"""What a router knows: models of the folder with their drafters, of presets and of the cache, and their flags."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

import pytest

from dflash_local import cli
from dflash_local.child_process import module_command
from dflash_local.cli.flags.serve_flags import is_router
from dflash_local.cli.serving.instance_flags import InstanceFlags
from dflash_local.cli.serving.serve_app import make_settings
from dflash_local.cli.serving.serve_router import cached_models, sockets_folder
from dflash_local.errors import DFlashError, RequestError
from dflash_local.hub.inventory import Entry
from dflash_local.server.router.catalog import Cached, Catalog
from dflash_local.server.router.folder import Folder, best_drafter
from dflash_local.server.router.instance import Instance, Launch
from dflash_local.server.router.model import Model
from dflash_local.server.router.presets import read_presets
from tests.projector_files import projector_file
from tests.server.test_cli import clean, parse

__all__ = ["clean"]  # the fixture: no variable of llama-server is set


@pytest.fixture
def flags() -> InstanceFlags:
    return InstanceFlags(parse().line.parser)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# ---- presets ----


PRESETS = """\
version = 1  ; of the format

; for all
[*]
  c = 8192
temp = 0.5
dedup-cache-models = on
[org/name:q4_k_m]   # as the cache calls it
c = 4096
model_draft = ./draft.gguf
LLAMA_ARG_CHAT_TEMPLATE_KWARGS = {"a": "#b"}
[own]
model = own.gguf
stop-timeout = 3
load-on-startup = true
"""


def test_a_file_of_windows(tmp_path: Path) -> None:
    every, _ = read_presets(written(tmp_path / "p.ini", "\ufeff[*]\r\ntemp = 0.5\r\n"))
    assert every.pairs == {"temp": "0.5"}


def test_sections_are_models(tmp_path: Path) -> None:
    every, models = read_presets(written(tmp_path / "p.ini", PRESETS))
    assert every.pairs == {"c": "8192", "temp": "0.5"}
    assert list(models) == ["org/name:Q4_K_M", "own"]
    named, own = models.values()
    assert named.pairs == {
        "c": "4096", "temp": "0.5", "model-draft": "./draft.gguf", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS": '{"a": "#b"}',
    }  # fmt: skip
    assert (named.dedup_cache, named.on_startup, named.stop_timeout) == (True, False, 10)
    assert (own.dedup_cache, own.on_startup, own.stop_timeout) == (True, True, 3)
    assert own.written == {"model": "own.gguf", "stop-timeout": "3", "load-on-startup": "true"}


def test_names_that_only_look_like_quantizations_stay(tmp_path: Path) -> None:
    """Ollama's, say."""
    _, models = read_presets(written(tmp_path / "p.ini", "[qwen:7b-chat]\n[ qwen:14b-chat ]\n[llama3.2:3b]\n"))
    assert list(models) == ["qwen:7b-chat", "qwen:14b-chat", "llama3.2:3b"]


def test_the_version_of_the_format_is_skipped_in_each_section(tmp_path: Path) -> None:
    every, models = read_presets(written(tmp_path / "p.ini", "[*]\nversion = 1\n[own]\nversion = 1\nc = 5\n"))
    assert not every.pairs
    assert models["own"].pairs == {"c": "5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c = 4\n[a]\n", "c is above the first section"),
        ("[a]\nnonsense\n", "nonsense"),
        ("[a]\nc = 4\nc = 5\n", "option 'c' in section 'a' already exists"),
        ("[a]\n[b]\n[a]\n", "section 'a' already exists"),
        ("[a]\nstop-timeout = soon\n", r"\[a\] stop-timeout must be a number of seconds, got 'soon'"),
        ("[a]\nstop-timeout = -1\n", "must be a number of seconds, got '-1'"),
        (f"[a]\nstop-timeout = 1{400 * '0'}\n", "must be a number of seconds, got '1000"),
        ("[x/y:q4_0]\n[x/y:Q4_0]\n", r"\[x/y:Q4_0\] is the name of another section, too"),
    ],
)
def test_what_is_no_file_of_presets(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_presets(written(tmp_path / "p.ini", text))
    with pytest.raises(RequestError, match="cannot read"):
        read_presets(tmp_path / "none.ini")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (
            {"c": "64", "LLAMA_ARG_N_GPU_LAYERS": "3", "n": "-2"},
            ["--ctx-size=64", "--n-gpu-layers=3", "--n-predict=-2"],
        ),
        ({"swa-full": "on", "slots": "off"}, ["--swa-full", "--no-slots"]),
        ({"no-slots": "1"}, ["--no-slots"]),
        ({"no-slots": "0"}, ["--slots"]),
        ({"LLAMA_ARG_NO_ENDPOINT_METRICS": "0"}, ["--no-metrics"]),  # whatever its value
        ({"mlock": "true"}, ["--mlock"]),
        ({"jinja": "true", "ctx-size": "5"}, ["--jinja", "--ctx-size=5"]),
        ({"chat-template": "chatml", "temp": "0"}, ["--chat-template=chatml", "--temperature=0"]),
    ],
)
def test_keys_are_flags(flags: InstanceFlags, pairs: dict[str, str], expected: list[str]) -> None:
    words = [word for words in flags.options(pairs, "a").values() for word in words]
    assert sorted(words) == sorted(expected)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"ctx": "5"}, r"\[a\] ctx: there is no such flag"),
        ({"help": "on"}, r"\[a\] help: there is no such flag of a model"),  # it would end the router
        ({"usage": "on"}, r"\[a\] usage: there is no such flag of a model"),
        ({"list-devices": "on"}, r"\[a\] list-devices: there is no such flag of a model"),
        ({"c": "many"}, r"\[a\] c: -c/--ctx-size: must be an integer, got 'many'"),
        ({"slots": "perhaps"}, r"\[a\] slots: must be on or off, got 'perhaps'"),
        ({"mmproj-device": "x"}, r"\[a\] mmproj-device: .*the projector is on the first device of --device"),
    ],
)
def test_a_key_that_is_wrong_is_told(flags: InstanceFlags, pairs: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        flags.options(pairs, "a")


def test_what_the_router_decides_is_told(flags: InstanceFlags, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert flags.options({"port": "80", "api-key": "x", "c": "5"}, "a") == {"n_ctx": ("--ctx-size=5",)}
    assert [line.partition(":")[0] for line in caplog.messages] == ["[a] port", "[a] api-key"]


# ---- the command line ----


def test_typed_flags_go_to_every_instance() -> None:
    line = "-c 64 --port 5 --temp=0.5 -fa on -fa -ngl all --no-slots -r A -r B -l 5+1 --api-key x --cont-batching -t4"
    line += " --lookup-corpus a.txt --lookup-corpus b.txt"
    typed = parse(*line.split()).typed
    assert typed["n_ctx"] == ("-c", "64")
    assert typed["sampling_temperature"] == ("--temp=0.5",)
    assert typed["flash_attn"] == ("-fa",)
    assert typed["slots"] == ("--no-slots",)
    assert typed["n_threads"] == ("-t4",)
    assert typed["lookup_corpus"] == ("--lookup-corpus", "a.txt", "--lookup-corpus", "b.txt")
    assert [word for words in typed.values() for word in words if words[0] == "-r"] == ["-r", "A", "-r", "B"]
    assert "--cont-batching" in typed


def test_variables_of_the_router_stay_with_it(flags: InstanceFlags, caplog: pytest.LogCaptureFixture) -> None:
    ours = {"LLAMA_ARG_PORT": "5", "LLAMA_API_KEY": "k", "LLAMA_ARG_MODEL": "m", "LLAMA_ARG_NO_UI": "1"}
    kept = {"LLAMA_ARG_CTX_SIZE": "64", "HOME": "/", "LLAMA_ARG_OFFLINE": "1"}
    with caplog.at_level(logging.WARNING):
        assert flags.environment({**ours, **kept}) == kept
    assert caplog.messages == ["LLAMA_ARG_MODEL is about one model: those of a router do not get it"]


def test_what_makes_a_router(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_router(parse())
    assert is_router(parse("--models-dir", "."))
    assert not is_router(parse("-m", "T.gguf"))
    assert not is_router(parse("--embedding-model", "E.gguf"))
    with pytest.raises(RequestError, match="make a router of many models, and another flag names one"):
        is_router(parse("--models-dir", ".", "-m", "T.gguf"))
    monkeypatch.setenv("LLAMA_ARG_MODELS_DIR", ".")
    assert not is_router(parse("-m", "T.gguf"))
    monkeypatch.setenv("LLAMA_ARG_MODEL", "T.gguf")
    assert not is_router(parse())
    assert is_router(parse("--models-preset", "p.ini"))
    monkeypatch.delenv("LLAMA_ARG_MODEL")
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", "user/name")
    assert not is_router(parse())


@pytest.mark.parametrize(
    ("words", "message", "fix"),
    [
        (("-md", "D.gguf"), "error: -md is about one model, and this command line names none", "add -m or -hf"),
        (("--alias=x",), "error: --alias is about one model", "[--models-preset]"),
        (("--models-dir", "/no/folder"), "error: /no/folder is no folder", "give --models-dir a folder"),
        (("--models-preset", "/no/file"), "error: cannot read /no/file", "docs/serving.md"),
    ],
)
def test_what_keeps_a_router_from_starting(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    fix: str,
) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    monkeypatch.setattr("dflash_local.cli.commands.serve.set_up_logs", lambda _args: logging.WARNING)
    assert cli.main(["serve", *words]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert fix.strip("[]") in said


def test_instances_take_no_modules_of_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def launch(command: tuple[str, ...], *_: object) -> None:
        raise DFlashError(" ".join(command))

    monkeypatch.setattr("dflash_local.server.router.instance.Launch", launch)
    monkeypatch.setattr("dflash_local.cli.commands.serve.set_up_logs", lambda _args: logging.WARNING)
    assert cli.main(["serve", "--models-dir", str(tmp_path)]) == 1
    assert f"error: {' '.join(module_command('dflash_local.cli'))} serve\n" in capsys.readouterr().err


def test_sockets_have_short_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with sockets_folder() as folder:
        assert Path(folder).parent == Path("/tmp")
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    monkeypatch.setattr("dflash_local.cli.commands.serve.set_up_logs", lambda _args: logging.WARNING)
    assert cli.main(["serve", "--models-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"too long for sockets: {long}" in said
    assert "fix: set TMPDIR to a shorter folder" in said


# ---- the folder ----


@pytest.fixture
def models(tmp_path: Path, pocket: dict[str, Path]) -> Path:
    """Two targets with a drafter each, and what lies about besides."""
    folder = tmp_path / "models"
    (folder / "hybrid").mkdir(parents=True)
    for source, name in (
        ("target", "small-F16"),
        ("dflash", "small-DFlash"),
        ("hybrid-target", "hybrid/model"),
        ("hybrid-dflash", "hybrid/drafter"),
    ):
        (folder / f"{name}.gguf").symlink_to(pocket[source])
    (folder / "imatrix.gguf").symlink_to(pocket["target"])
    projector_file(folder / "mmproj-F16.gguf")
    (folder / "notes.gguf").write_text("no model")
    (folder / "big-00001-of-00002.gguf").symlink_to(pocket["target"])
    (folder / "big-00002-of-00002.gguf").symlink_to(pocket["target"])
    return folder


def test_a_model_with_a_folder_of_its_own_has_its_projector(models: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = projector_file(models / "hybrid" / "mmproj-F16.gguf")
    projector_file(models / "hybrid" / "mmproj-F32.gguf", 512)
    folder = Folder(models)

    def projectors() -> dict[str, Path | None]:
        return {entry.name: entry.projector for entry in folder.read()}

    assert projectors() == {"small-F16": None, "hybrid": path, "big": None}
    catalog = Catalog(InstanceFlags(parse().line.parser), folder=folder).read()
    assert f"--mmproj={path}" in catalog["hybrid"].arguments
    off = {"mmproj_auto": ("--no-mmproj",)}
    catalog = Catalog(InstanceFlags(parse().line.parser), typed=off, folder=folder).read()
    assert [word for word in catalog["hybrid"].arguments if "mmproj" in word] == ["--no-mmproj"]
    path.unlink()
    assert projectors()["hybrid"] is None
    assert "mmproj-F32.gguf cannot be used: the rows of mmproj-F32.gguf are 512 wide" in caplog.text
    caplog.clear()
    assert projectors()["hybrid"] is None and not caplog.messages  # told once


def test_drafters_find_their_targets(models: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(models)
    with caplog.at_level(logging.WARNING):
        found = {entry.name: entry for entry in folder.read()}
    assert {name: entry.drafter and entry.drafter.name for name, entry in found.items()} == {
        "small-F16": "small-DFlash.gguf", "hybrid": "drafter.gguf", "big": "small-DFlash.gguf",
    }  # fmt: skip
    assert found["big"].path.name == "big-00001-of-00002.gguf"
    told = " ".join(caplog.messages)
    assert "imatrix.gguf is left out: statistics for quantizing" in told
    assert {entry.projector for entry in found.values()} == {None}  # not that of the folder of all models
    assert "notes.gguf is left out: " in told
    caplog.clear()
    assert {entry.name for entry in folder.read()} == set(found)
    assert not caplog.messages  # told once
    (models / "small-DFlash.gguf").unlink()
    assert {entry.name: entry.drafter is None for entry in folder.read()} == {
        "small-F16": True, "hybrid": False, "big": True,
    }  # fmt: skip


def test_several_models_of_one_folder(models: Path, pocket: dict[str, Path]) -> None:
    (models / "hybrid" / "other.gguf").symlink_to(pocket["target"])
    names = [entry.name for entry in Folder(models).read()]
    assert names == ["big", "hybrid/model", "hybrid/other", "small-F16"]


def test_models_of_one_name(models: Path, pocket: dict[str, Path]) -> None:
    """All are listed: the folder's own file has the short name."""
    for name in ("hybrid", "big", "big-00001-of-00003"):
        (models / f"{name}.gguf").symlink_to(pocket["target"])
    assert {entry.name: entry.path.relative_to(models).as_posix() for entry in Folder(models).read()} == {
        "big": "big-00001-of-00002.gguf",
        "big-00001-of-00003": "big-00001-of-00003.gguf",
        "big.gguf": "big.gguf",
        "hybrid": "hybrid.gguf",
        "hybrid/model": "hybrid/model.gguf",
        "small-F16": "small-F16.gguf",
    }


def test_a_name_without_commas(tmp_path: Path, pocket: dict[str, Path]) -> None:
    """They would make several names of it."""
    for name in ("b,a", "b_a"):
        (tmp_path / f"{name}.gguf").symlink_to(pocket["target"])
    assert [entry.name for entry in Folder(tmp_path).read()] == ["b_a", "b_a.gguf"]
    for name in ("b,a,c", "b_a,c", "b,a_c", "b_a_c"):
        (tmp_path / f"{name}.gguf").symlink_to(pocket["target"])
    found = [entry.name for entry in Folder(tmp_path).read()]
    assert len({*found}) == 6 and not any("," in name for name in found)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names of files are Unicode there")
def test_a_name_that_is_no_utf8(tmp_path: Path, pocket: dict[str, Path]) -> None:
    """An answer could not hold it."""
    for name in ("b\udce8", "b\udce9"):
        (tmp_path / f"{name}.gguf").symlink_to(pocket["target"])
    found = Folder(tmp_path).read()
    assert [entry.name for entry in found] == ["b\ufffd", "b\ufffd.gguf"]
    assert all(entry.path.is_file() for entry in found)
    settings = make_settings(parse("-m", str(found[0].path)))
    assert settings.alias == "b\ufffd.gguf"


@pytest.mark.parametrize("name", ["-x", "--help", "a=b"])
def test_any_other_name_is_one_of_the_command_line(tmp_path: Path, name: str) -> None:
    instance = Instance(Model(name, "models_dir"), Launch((), {}, tmp_path), 1, lambda *_: None)
    assert parse(*instance.command).alias == (name,)


def test_of_several_drafters(tmp_path: Path, pocket: dict[str, Path]) -> None:
    """The one beside the target, then the one that is called most like it; never one that does not fit."""
    target = tmp_path / "a" / "Qwen-8B-Q4.gguf"
    paths = [tmp_path / "Qwen-8B-Q4.gguf", tmp_path / "a" / "z.gguf", tmp_path / "a" / "dflash-Qwen-8B.gguf"]
    target.parent.mkdir()
    for path, source in zip([target, *paths], ("target", "dflash", "dflash", "dflash"), strict=True):
        shutil.copy(pocket[source], path)
    assert best_drafter(target, paths) == paths[2]
    assert best_drafter(target, paths[:2]) == paths[1]
    assert best_drafter(target, [pocket["hybrid-dflash"]]) is None


def test_next_token_layers_of_a_file(tmp_path: Path, pocket: dict[str, Path], untrained_mtp: Path) -> None:
    """It is no model; it drafts for a target without layers of its own, if no DFlash drafter does."""
    (tmp_path / "trunk.gguf").symlink_to(pocket["hybrid-target"])
    (tmp_path / "own.gguf").symlink_to(untrained_mtp)
    (tmp_path / "mtp-trunk.gguf").symlink_to(untrained_mtp)

    def drafters() -> dict[str, Path | None]:
        return {entry.name: entry.drafter for entry in Folder(tmp_path).read()}

    assert drafters() == {"own": None, "trunk": tmp_path / "mtp-trunk.gguf"}
    dflash = tmp_path / "dflash.gguf"
    dflash.symlink_to(pocket["hybrid-dflash"])
    assert drafters() == {"own": dflash, "trunk": dflash}


# ---- all of them ----


def test_the_catalog(flags: InstanceFlags, models: Path, tmp_path: Path) -> None:
    """The command line beats a model's section, and that the section of all."""
    file = written(
        tmp_path / "p.ini",
        "[*]\nc = 1\nt = 1\nb = 1\n[small-F16]\nc = 2\nt = 2\nalias = s, tiny\ntags = fast\n[own]\nhf-repo = org/own\n",
    )
    cached = [Cached("org/own:Q8_0", Path("/cache/own"), {"hf_repo": ("--hf-repo=org/own:Q8_0",)})]
    catalog = Catalog(flags, {"n_threads": ("-t", "3")}, lambda: cached, lambda _: set(), Folder(models), file)
    found = catalog.read()
    assert [(name, model.source) for name, model in found.items()] == [
        ("big", "models_dir"), ("hybrid", "models_dir"), ("org/own:Q8_0", "cache"), ("own", "preset"),
        ("small-F16", "preset"),
    ]  # fmt: skip
    small = found["small-F16"]
    assert {key: small.options[key] for key in ("n_ctx", "n_threads", "n_batch")} == {
        "n_ctx": ("--ctx-size=2",), "n_threads": ("-t", "3"), "n_batch": ("--batch-size=1",),
    }  # fmt: skip
    assert (small.aliases, small.tags) == (("s", "tiny"), ("fast",))
    assert f"--spec-draft-model={models / 'small-DFlash.gguf'}" in small.arguments
    assert found["big"].options["n_ctx"] == ("--ctx-size=1",)
    parse(*small.arguments)


def test_the_section_of_all_holds_for_models_without_one(flags: InstanceFlags, models: Path, tmp_path: Path) -> None:
    file = written(
        tmp_path / "p.ini",
        "[*]\nstop-timeout = 77\nload-on-startup = true\n[hybrid]\nstop-timeout = 5\nload-on-startup = false\n"
        "[own]\nhf-repo = org/own\ndedup-cache-models = 1\n",
    )
    cached = [Cached("org/own:Q8_0", Path("/cache/own"), flags.given({"hf_repo": "org/own:Q8_0"}))]
    found = Catalog(flags, {}, lambda: cached, lambda _: {Path("/cache/own")}, Folder(models), file).read()
    assert {name: (model.stop_timeout, model.on_startup) for name, model in found.items()} == {
        "big": (77, True), "small-F16": (77, True), "hybrid": (5, False), "own": (77, True),
        "org/own:Q8_0": (77, False),  # hidden
    }  # fmt: skip


def test_clients_see_no_secrets_of_a_section(flags: InstanceFlags, tmp_path: Path) -> None:
    text = "[a]\nm = x\nhf_token = hf_secret\nLLAMA_API_KEY = sk-secret\nmmproj-url = https://me:secret@host/p.gguf\n"
    model = Catalog(flags, presets=written(tmp_path / "p.ini", text)).read()["a"]
    assert model.preset == "[a]\nm = x\nmmproj-url = https://host/p.gguf\n"
    assert model.options["mmproj_url"] == ("--mmproj-url=https://me:secret@host/p.gguf",)


def test_cached_models_are_loaded_without_a_download(
    flags: InstanceFlags, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless their section names what may not be here."""
    entries = [Entry(f"org/{name}:Q8_0", tmp_path / name) for name in ("plain", "own", "drafted")]
    monkeypatch.setattr("dflash_local.hub.inventory.entries", lambda *_: entries)
    file = written(tmp_path / "p.ini", "[org/own:Q8_0]\nnp = 2\n[org/drafted:Q8_0]\nhf-repo-draft = org/drafter\n")
    found = Catalog(flags, cached=lambda: [*cached_models(flags)], presets=file).read()
    assert {name: parse(*model.arguments).offline for name, model in found.items()} == {
        "org/plain:Q8_0": True, "org/own:Q8_0": True, "org/drafted:Q8_0": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nc = 5\n", r"\[a\] names no model"),
        ("[b,a]\nm = x\n", r"\[b,a\] has a comma, which separates names"),
        ("[a]\nm = x\nalias = b\n[b]\nm = y\n", r"\[a\] the alias 'b' is the name of another model"),
        ("[a]\nm = x\nalias = z\n[b]\nm = y\nalias = z\n", r"\[b\] the alias 'z' is an alias of a"),
    ],
)
def test_a_catalog_that_cannot_be(flags: InstanceFlags, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Catalog(flags, presets=written(tmp_path / "p.ini", text)).read()


def test_a_preset_stands_for_its_file_of_the_cache(flags: InstanceFlags, tmp_path: Path) -> None:
    file = written(tmp_path / "p.ini", "[own]\nhf-repo = org/own\ndedup-cache-models = 1\n")
    cached = [
        Cached(f"org/{name}:Q8_0", Path(name), flags.given({"hf_repo": f"org/{name}"})) for name in ("own", "two")
    ]
    catalog = Catalog(flags, cached=lambda: cached, files=lambda _: {Path("own")}, presets=file)
    assert {name: model.hidden for name, model in catalog.read().items()} == {
        "org/own:Q8_0": True, "org/two:Q8_0": False, "own": False,
    }  # fmt: skip


def test_what_a_model_reads_is_known_before_it_is_loaded(flags: InstanceFlags, tmp_path: Path) -> None:
    sees = projector_file(tmp_path / "sees.gguf")
    (tmp_path / "damaged.gguf").write_bytes(sees.read_bytes()[:100])
    text = "".join(
        f"[{name}]\nm = {tmp_path}/x.gguf\nmmproj = {tmp_path}/{file}.gguf\n"
        for name, file in (("named", "sees"), ("damaged", "damaged"), ("gone", "none"))
    )
    text += f"[org/off:Q8_0]\nno-mmproj = true\n[text]\nm = {tmp_path}/x.gguf\n"
    cached = [
        Cached(f"org/{name}:Q8_0", Path(name), flags.given({"hf_repo": f"org/{name}"}), sees) for name in ("own", "off")
    ]
    catalog = Catalog(flags, cached=lambda: cached, presets=written(tmp_path / "p.ini", text))
    found = {name: model.abilities[:2] for name, model in catalog.read().items()}
    assert found.pop("named") == found.pop("org/own:Q8_0") == (True, False)
    assert {*found.values()} == {(False, False)} and len(found) == 4


def test_errors_have_a_fix(tmp_path: Path) -> None:
    with pytest.raises(DFlashError) as caught:
        Folder(tmp_path / "none").read()
    assert caught.value.hint
