"""Models on this machine: every store's layout, the memory between starts, progress and cancel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplanner.catalog import gpus
from kvplanner.engine.registry import engine
from kvplanner.engine.request import PlanRequest
from kvplanner.errors import BadInput, UnknownName
from kvplanner.source.hub import cache as hub_cache
from kvplanner.source.resolve import open_model
from kvplanner.source.stores import llamacpp as llamacpp_cache
from kvplanner.source.stores import lmstudio, local, memory, ollama
from kvplanner.source.stores.describe import describe
from kvplanner.source.stores.found import Candidate, Found, Unwatched
from tests.patience import LONG_S
from tests.source.checkpoints import sub_model
from tests.source.checkpoints_dense import llama
from tests.source.kit import CONFIG, Cancelled, Cancelling, add_to_hub_cache, add_to_ollama, safetensors_files
from tests.source.make_gguf import STRING, U16, header, llama_file, llama_pairs, llama_tensors, write_split
from tests.source.make_models import total_bytes, write_folder

pytestmark = pytest.mark.slow

COMMIT = "a" * 40
WATCH = Unwatched()


# ---- the Hub's cache ----


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HF_HUB_CACHE": "/a/hub", "HF_HOME": "/b"}, "/a/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({}, str(Path.home() / ".cache" / "huggingface" / "hub")),
        ({"HF_HUB_CACHE": "~/hub"}, str(Path.home() / "hub")),
    ],
)
def test_where_the_hub_cache_is(environment: dict[str, str], expected: str) -> None:
    assert hub_cache.root(environment) == Path(expected)


@pytest.mark.parametrize(
    "environment",
    [
        {}, {"HF_HOME": "/b"}, {"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, {"HUGGINGFACE_HUB_CACHE": "~/c"},
        {"XDG_CACHE_HOME": "/x"},
    ],
)  # fmt: skip
def test_the_hub_cache_place_is_the_librarys(environment: dict[str, str]) -> None:
    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
    env = {**{name: value for name, value in os.environ.items() if name not in names}, **environment}
    code = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=LONG_S
    )
    assert str(hub_cache.root(env)) == done.stdout.strip()


def test_models_of_the_hub_cache(tmp_path: Path) -> None:
    add_to_hub_cache(tmp_path, "org/tensors", safetensors_files())
    add_to_hub_cache(tmp_path, "org/quants", {"m-Q8_0.gguf": llama_file(), "m-Q4_0.gguf": llama_file(3)})
    add_to_hub_cache(tmp_path, "bert", safetensors_files())
    add_to_hub_cache(tmp_path, "org/only-a-tokenizer", {"tokenizer.json": b"{}"})
    (tmp_path / "datasets--org--data" / "snapshots" / COMMIT).mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    (tmp_path / ".locks").mkdir()
    found = local.scan(local.Places(hub_caches=(tmp_path,)))
    assert [(f.name, f.format) for f in found] == [
        ("bert", "bfloat16"), ("org/quants: m-Q4_0", "Q8_0"), ("org/quants: m-Q8_0", "Q8_0"),
        ("org/tensors", "bfloat16"),
    ]  # fmt: skip
    tensors = found[-1]
    assert tensors.store == "Hub cache"
    assert tensors.parameters == total_bytes(llama(sub_model(CONFIG, 2))) // 2
    assert tensors.context_length == 8192
    assert tensors.bytes > total_bytes(llama(sub_model(CONFIG, 2)))
    assert open_model(tensors.key).id == "org/tensors"
    assert all(open_model(f.key).spec.num_layers for f in found)


def test_the_revision_that_main_names_is_shown(tmp_path: Path) -> None:
    add_to_hub_cache(tmp_path, "org/two", safetensors_files(2), "b" * 40, "")
    add_to_hub_cache(tmp_path, "org/two", safetensors_files(3), "c" * 40, "main")
    add_to_hub_cache(tmp_path, "org/two", safetensors_files(4), "d" * 40, "v2")
    found = local.scan(local.Places(hub_caches=(tmp_path,)))
    assert [Path(f.path).name for f in found] == ["c" * 40]


def test_shared_blobs_and_unfinished_downloads(tmp_path: Path) -> None:
    snapshot = add_to_hub_cache(tmp_path, "org/model", safetensors_files())
    shared = tmp_path / "blobs" / "ab" / "xet"
    shared.parent.mkdir(parents=True)
    target = (snapshot / "model.safetensors").resolve()
    target.rename(shared)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(shared)
    assert local.scan(local.Places(hub_caches=(tmp_path,)))[0].problem == ""
    shared.unlink()
    assert "download is incomplete" in local.scan(local.Places(hub_caches=(tmp_path,)))[0].problem


def test_a_cached_model_opens_by_its_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    add_to_hub_cache(tmp_path, "Org/My-Model", safetensors_files())
    add_to_hub_cache(tmp_path, "org/quant", {"m-Q8_0.gguf": llama_file()})
    assert open_model("org/my-model").id == "Org/My-Model"
    assert open_model("org/quant").source_kind == "gguf"
    with pytest.raises(UnknownName):
        open_model("org/absent")


@pytest.mark.parametrize("name", ["../../etc", "a/b/c", "a/..", "", "a/b@../../x"])
def test_names_that_could_leave_the_cache(name: str, tmp_path: Path) -> None:
    assert hub_cache.find(name, {"HF_HUB_CACHE": str(tmp_path)}) is None


# ---- Ollama ----


def test_models_of_ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    content = llama_file()
    add_to_ollama(tmp_path, "small:8b", {"model": content, "params": b"{}"})
    add_to_ollama(tmp_path, "someone/other:latest", {"model": llama_file(3), "projector": b"GGUF1234"})
    add_to_ollama(tmp_path, "org/Repo:Q8_0", {"model": llama_file(4)}, host="hf.co")
    found = local.scan(local.Places(ollama=(tmp_path,)))
    assert [f.name for f in found] == ["hf.co/org/Repo:Q8_0", "small:8b", "someone/other:latest"]
    small = found[1]
    assert (small.key, small.format, small.architecture, small.bytes) == (
        "ollama:small:8b",
        "Q8_0",
        "llama",
        len(content),
    )
    model = open_model("ollama:small:8b")
    assert (model.id, model.source_kind, model.source_detail) == ("small:8b", "ollama", "ollama:small:8b")
    assert [open_model(f.key).spec.num_layers for f in found] == [4, 2, 3]
    other = open_model("ollama:someone/other")
    assert any("projector of 8 bytes" in problem for problem in other.problems)
    assert dict(other.asks) == {"mmproj_size": 8}
    planned = engine("ollama").plan(PlanRequest(other, gpus.machine("RTX 4090"), "ollama"))
    assert planned.options["mmproj_size"].value == 8


@pytest.mark.parametrize(
    ("params", "asks"),
    [
        (b'{"num_ctx": 6144, "num_gpu": 30, "temperature": 0.6, "stop": ["x"]}', {"num_ctx": 6144, "num_gpu": 30}),
        (b'{"num_ctx": "16k", "num_gpu": -1, "num_batch": true}', {}),
        (b"not json", {}),
        (b'{"num_ctx": ' + b"9" * 70000 + b"}", {}),
    ],
)
def test_parameters_that_an_ollama_model_sets_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: bytes, asks: dict[str, int]
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    add_to_ollama(tmp_path, "small:8b", {"model": llama_file(), "params": params})
    model = open_model("ollama:small:8b")
    assert dict(model.asks) == asks
    options = engine("ollama").plan(PlanRequest(model, gpus.machine("RTX 4090"), "ollama")).options
    for name, value in asks.items():
        assert (options[name].value, options[name].reason) == (value, "a parameter of the model itself")
    given = engine("ollama").plan(PlanRequest(model, gpus.machine("RTX 4090"), "ollama", options={"num_ctx": 512}))
    assert given.options["num_ctx"].value == 512


def test_ollama_names_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    add_to_ollama(tmp_path, "small:8b", {"model": llama_file()})
    with pytest.raises(UnknownName) as caught:
        open_model("ollama:small")
    assert caught.value.near == ("small:8b",)
    for name in ("ollama:../../etc/passwd", "ollama:", "ollama:a/b/c/d", "ollama:a/../b:c"):
        with pytest.raises(BadInput):
            open_model(name)


def test_broken_ollama_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    add_to_ollama(tmp_path, "short:1", {"model": llama_file(5)})
    add_to_ollama(tmp_path, "gone:1", {"model": llama_file(6)})
    add_to_ollama(tmp_path, "pieces:1", {"tensor": b"x", "json": b"{}"})
    broken = add_to_ollama(tmp_path, "broken:1", {"model": llama_file(7)})
    evil = add_to_ollama(tmp_path, "evil:1", {"model": llama_file(8)})
    broken.write_text("{")
    evil.write_text(json.dumps({"layers": [{"mediaType": "m", "digest": "sha256:../../x", "size": 1}]}))
    blobs = {ollama.find(n).of_kind("model")[0].blob for n in ("short:1",)}
    os.truncate(next(iter(blobs)), 1000)
    ollama.find("gone:1").of_kind("model")[0].blob.unlink()
    problems = {f.name: f.problem for f in local.scan(local.Places(ollama=(tmp_path,)))}
    assert "pull the model again" in problems["short:1"]
    assert "missing" in problems["gone:1"]
    assert "broken JSON" in problems["broken:1"]
    assert "sha256 digest" in problems["evil:1"]
    for name, words in (
        ("short:1", "has 1,000 of"),
        ("gone:1", "missing"),
        ("pieces:1", "no single GGUF"),
        ("evil:1", "sha256"),
    ):
        with pytest.raises(BadInput, match=words):
            open_model(f"ollama:{name}")


def test_where_ollama_may_be() -> None:
    assert ollama.roots({"OLLAMA_MODELS": "/m"}) == (Path("/m"),)
    assert Path("/usr/share/ollama/.ollama/models") in ollama.roots({})


# ---- LM Studio, llama.cpp, folders ----


def test_models_of_lm_studio(tmp_path: Path) -> None:
    home = tmp_path / "home"
    models = home / ".lmstudio" / "models"
    (models / "pub" / "model").mkdir(parents=True)
    (models / "pub" / "model" / "m-Q8_0.gguf").write_bytes(llama_file())
    (models / "pub" / "model" / "mmproj-m.gguf").write_bytes(b"GGUF")
    (models / "ignored.gguf").write_bytes(llama_file())
    write_split(models / "pub" / "model", "big", llama_pairs(4), llama_tensors(4), 3)
    write_folder(models / "mlx" / "tensors", CONFIG, llama(CONFIG))
    roots = lmstudio.roots({"HOME": str(home)})
    found = local.scan(local.Places(lmstudio=roots))
    assert [f.name for f in found] == ["mlx/tensors", "pub/model: big", "pub/model: m-Q8_0"]
    moved = tmp_path / "moved"
    (home / ".lmstudio-home-pointer").write_text(str(moved) + "\n")
    assert lmstudio.roots({"HOME": str(home)})[0] == moved / "models"


def test_models_of_llama_cpp(tmp_path: Path) -> None:
    (tmp_path / "org_model-Q8_0.gguf").write_bytes(llama_file())
    (tmp_path / "org_model-Q8_0.gguf.json").write_text("{}")
    assert llamacpp_cache.root({"LLAMA_CACHE": str(tmp_path)}) == tmp_path
    found = local.scan(local.Places(llamacpp=(tmp_path,)))
    assert [(f.name, f.store) for f in found] == [("org_model-Q8_0", "llama.cpp")]


def test_folders_of_the_users_own(tmp_path: Path) -> None:
    write_folder(tmp_path / "deep" / "er" / "model", CONFIG, llama(CONFIG), shards=2)
    (tmp_path / "adapter.gguf").write_bytes(
        header([("general.architecture", STRING, "llama"), ("general.type", STRING, "adapter")], [])[0]
    )
    (tmp_path / "broken.gguf").write_bytes(b"GGUF nonsense")
    (tmp_path / "part-00001-of-00002.gguf").write_bytes(
        header([*llama_pairs(), ("split.count", U16, 2)], llama_tensors())[0] + bytes(10**7)
    )
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.gguf").write_bytes(llama_file())
    found = {f.name: f for f in local.scan(local.Places(folders=(tmp_path, tmp_path / "nowhere")))}
    assert set(found) == {"model", "broken", "part"}
    assert "version" in found["broken"].problem
    assert "1 of 2 files is missing" in found["part"].problem
    assert found["model"].problem == ""


def test_folders_that_may_not_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "m.gguf").write_bytes(llama_file())
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def guarded(path: str | Path) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", guarded)
    everywhere = local.Places(*[(tmp_path, tmp_path / "closed")] * 5)
    assert {f.name for f in local.scan(everywhere)} == {"m"}
    with pytest.raises(BadInput, match="may not be read"):
        open_model(str(tmp_path / "closed"))


# ---- memory, progress, cancel ----


class Counting:
    def __init__(self) -> None:
        self.told: list[tuple[float | None, str]] = []

    def check(self) -> None:
        pass

    def progress(self, share: float | None, text: str = "") -> None:
        self.told.append((share, text))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for number in range(6):
        add_to_hub_cache(tmp_path / "cache", f"org/m{number}", safetensors_files(number + 1))
    return tmp_path / "cache"


def test_what_was_found_is_remembered(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept" / "deeper"
    assert local.remembered(kept) == ()
    where = local.Places(hub_caches=(cache,))
    told: list[Found] = []
    first = local.scan(where, remember_in=kept, on_found=told.append)
    assert sorted(told, key=lambda f: f.name) == list(first)
    assert local.remembered(kept) == first
    described: list[str] = []
    monkeypatch.setattr(local, "describe", lambda candidate: described.append(candidate.name))
    assert local.scan(where, remember_in=kept) == first
    assert described == []


def test_only_what_changed_is_opened_again(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    where = local.Places(hub_caches=(cache,))
    before = local.scan(where, remember_in=kept)
    config = hub_cache.current_snapshot(cache / "models--org--m3")
    assert config is not None
    (config / "config.json").resolve().write_text(json.dumps({**sub_model(CONFIG, 4), "max_position_embeddings": 99}))
    described: list[str] = []

    def counted(candidate: Candidate) -> Found | None:
        described.append(candidate.name)
        return describe(candidate)

    monkeypatch.setattr(local, "describe", counted)
    after = local.scan(where, remember_in=kept)
    assert described == ["org/m3"]
    assert [f.context_length for f in after] == [99 if f.name == "org/m3" else f.context_length for f in before]


def test_what_is_gone_is_forgotten(cache: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    where = local.Places(hub_caches=(cache,))
    local.scan(where, remember_in=kept)
    (cache / "models--org--m2").rename(tmp_path / "elsewhere")
    assert [f.name for f in local.scan(where, remember_in=kept)] == ["org/m0", "org/m1", "org/m3", "org/m4", "org/m5"]
    assert len(local.remembered(kept)) == 5


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 99}', b'{"version": 1, "entries": [1, {"key": 2}]}']
)
def test_a_broken_memory_is_no_memory(content: bytes, cache: Path, tmp_path: Path) -> None:
    (tmp_path / memory.FILE_NAME).write_bytes(content)
    assert local.remembered(tmp_path) == ()
    assert len(local.scan(local.Places(hub_caches=(cache,)), remember_in=tmp_path)) == 6
    assert len(local.remembered(tmp_path)) == 6


def test_a_memory_with_wrong_types_is_not_believed(cache: Path, tmp_path: Path) -> None:
    local.scan(local.Places(hub_caches=(cache,)), remember_in=tmp_path)
    content = json.loads((tmp_path / memory.FILE_NAME).read_text())
    content["entries"][0]["found"]["bytes"] = "many"
    content["entries"][1]["found"]["store"] = "elsewhere"
    content["entries"][2]["mark"] = [1, 2]
    (tmp_path / memory.FILE_NAME).write_text(json.dumps(content))
    assert len(local.remembered(tmp_path)) == 3


def test_a_memory_that_cannot_be_written_costs_nothing_else(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(local.scan(local.Places(hub_caches=(cache,)), remember_in=tmp_path / "file" / "x")) == 6


def test_progress_grows_to_one(cache: Path) -> None:
    watch = Counting()
    local.scan(local.Places(hub_caches=(cache,)), control=watch)
    shares = [share for share, _ in watch.told if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any(text == "org/m4" for _, text in watch.told)


def test_a_search_can_be_cancelled_at_every_step(cache: Path, tmp_path: Path) -> None:
    steps = 0
    for calls in range(100):
        kept = tmp_path / str(calls)
        try:
            local.scan(local.Places(hub_caches=(cache,)), control=Cancelling(calls), remember_in=kept)
        except Cancelled:
            assert local.remembered(kept) == () or calls > 12
            steps += 1
            continue
        break
    assert steps > 10


def test_usual_places_come_from_the_environment(tmp_path: Path) -> None:
    where = local.places((tmp_path,), {"HF_HOME": "/h", "OLLAMA_MODELS": "/o", "LLAMA_CACHE": "/l", "HOME": "/u"})
    assert where.hub_caches == (Path("/h/hub"),)
    assert where.ollama == (Path("/o"),)
    assert where.llamacpp == (Path("/l"),)
    assert Path("/u/.lmstudio/models") in where.lmstudio
    assert where.folders == (tmp_path,)
