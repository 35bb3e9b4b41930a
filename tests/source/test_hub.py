"""The Hub through its real client, against a server of our own: what opens, what is refused and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvplanner.errors import BadInput
from kvplanner.model.model import Model
from kvplanner.source.hub import client as hub_client
from kvplanner.source.hub import open as hub
from kvplanner.source.hub.errors import HubError
from tests.patience import LONG_S
from tests.source import make_gguf
from tests.source.checkpoints import sub_model
from tests.source.checkpoints_dense import llama
from tests.source.hub_server import COMMIT, HubServer, Repository, running
from tests.source.kit import CONFIG, Cancelled, Cancelling
from tests.source.make_models import header_bytes, total_bytes

pytestmark = pytest.mark.slow


def safetensors_repository(**more: Any) -> Repository:
    tensors = llama(sub_model(CONFIG, 4))
    head = header_bytes(tensors)
    # The data is a megabyte or so of zeros: more than the client may ever ask for.
    content = head + bytes(total_bytes(tensors))
    return Repository({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": content}, **more)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with running() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
        monkeypatch.setenv("HF_TOKEN", "good")
        yield found


def stored_bytes(model: Model) -> int:
    assert model.stored is not None
    return model.stored.value


def open_(name: str, tmp_path: Path, **more: Any) -> Model:
    return hub.open_model(name, allow_network=True, store=tmp_path / "store", **more)


def test_a_safetensors_repository_opens_from_its_headers_alone(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = repository = safetensors_repository()
    model = open_("org/small", tmp_path)
    assert model.id == "org/small"
    assert model.source_kind == "hub"
    assert COMMIT[:12] in model.source_detail
    assert model.stored is not None
    assert model.stored.value == total_bytes(llama(CONFIG))
    assert model.inventory is not None
    assert model.inventory.exact
    assert model.problems == ()
    fetched = server.ranges("model.safetensors")
    assert fetched == [f"bytes=0-{hub.FIRST_BYTES - 1}"]
    assert len(repository.files["model.safetensors"]) > 4 * hub.FIRST_BYTES
    assert set(server.tokens) == {"Bearer good"}


def test_nothing_but_the_model_is_asked_for(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    open_("org/small", tmp_path)
    paths = {path for path, _ in server.requests}
    assert paths == {
        "/api/models/org/small",
        f"/org/small/resolve/{COMMIT}/config.json",
        f"/org/small/resolve/{COMMIT}/model.safetensors",
    }


def test_it_opens_again_offline_with_its_revision(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repositories["org/small"] = safetensors_repository()
    before = open_("org/small", tmp_path)
    asked = len(server.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = open_("org/small", tmp_path)
    assert len(server.requests) == asked
    assert again.inventory == before.inventory
    assert again.problems == ()
    assert COMMIT[:12] in again.source_detail
    assert "HF_HUB_OFFLINE" in again.source_detail


def test_an_unreachable_hub_falls_back_to_what_was_kept(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    before = open_("org/small", tmp_path)
    server.close()
    again = open_("org/small", tmp_path)
    assert again.inventory == before.inventory
    assert "cannot be reached" in again.source_detail


def test_not_allowed_means_no_request(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    with pytest.raises(HubError) as caught:
        hub.open_model("org/small", allow_network=False, store=tmp_path)
    assert caught.value.trouble == "offline"
    assert server.requests == []


def test_offline_opens_what_the_hubs_own_cache_holds(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub-cache" / "models--org--small" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name, content in safetensors_repository().files.items():
        (snapshot / name).write_bytes(content)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = open_("org/small", tmp_path)
    assert model.id == "org/small"
    assert server.requests == []


@pytest.mark.parametrize("revision", ["main", "v2", COMMIT])
def test_revisions(server: HubServer, tmp_path: Path, revision: str) -> None:
    other = "fedcba9876543210fedcba9876543210fedcba98"
    server.repositories["org/small"] = safetensors_repository(revisions={"main": COMMIT, "v2": other})
    model = open_(f"org/small@{revision}", tmp_path)
    assert model.source_detail == f"org/small@{(other if revision == 'v2' else COMMIT)[:12]}"


def test_an_unknown_revision_is_told(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    with pytest.raises(HubError, match="no revision 'v9'") as caught:
        open_("org/small@v9", tmp_path)
    assert caught.value.trouble == "not_found"


@pytest.mark.parametrize(
    ("token", "gated", "trouble", "words"),
    [
        ("", True, "gated", "accept terms"),
        ("other", True, "gated", "accept terms"),
        ("", False, "not_found", "private"),
        ("other", False, "not_found", "private"),
        ("invalid", False, "unauthorised", "token is not valid"),
    ],
)
def test_closed_repositories_say_how_to_get_in(
    server: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    gated: bool,
    trouble: str,
    words: str,
) -> None:
    server.repositories["org/closed"] = safetensors_repository(needs_token="good", gated=gated, private=not gated)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    else:
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(HubError, match=words) as caught:
        open_("org/closed", tmp_path)
    assert caught.value.trouble == trouble
    assert caught.value.remedy
    monkeypatch.setenv("HF_TOKEN", "good")
    assert open_("org/closed", tmp_path).id == "org/closed"


def test_a_repository_that_is_not_there(server: HubServer, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="does not exist, or is private") as caught:
        open_("org/nothing", tmp_path)
    assert caught.value.trouble == "not_found"


@pytest.mark.parametrize(
    ("behaviour", "trouble"),
    [
        ("cut off", "bad_answer"),
        ("other range", "bad_answer"),
        ("shorter than said", "bad_answer"),
        ("other size", "bad_answer"),
        ("no content range", "bad_answer"),
        ("429", "rate_limited"),
        ("500", "rate_limited"),
    ],
)
def test_a_lying_or_failing_server_is_refused(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, trouble: str
) -> None:
    monkeypatch.setattr(hub_client, "LONGEST_WAIT_S", 0.01)
    server.repositories["org/small"] = safetensors_repository(behaviour=behaviour)
    with pytest.raises(HubError) as caught:
        open_("org/small", tmp_path)
    assert caught.value.trouble == trouble
    assert "org/small" in str(caught.value)


def test_wrong_bytes_are_a_broken_file(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository(behaviour="other bytes")
    with pytest.raises(BadInput, match="announce a header"):
        open_("org/small", tmp_path)


@pytest.mark.parametrize("behaviour", ["redirect", "no ranges", "429 once", "longer than said"])
def test_servers_that_answer_otherwise_but_rightly(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    """The client keeps to the length that a message announces, so that surplus bytes are never seen."""
    monkeypatch.setattr(hub_client, "LONGEST_WAIT_S", 0.01)
    server.repositories["org/small"] = safetensors_repository(behaviour=behaviour)
    if behaviour == "longer than said":
        with pytest.raises(HubError, match="more bytes"):
            open_("org/small", tmp_path)
        return
    assert stored_bytes(open_("org/small", tmp_path)) == total_bytes(llama(CONFIG))


def test_an_endless_answer_is_cut(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository(behaviour="endless")
    started = time.monotonic()
    with pytest.raises(BadInput):
        open_("org/small", tmp_path)
    assert time.monotonic() - started < 10


def test_a_slow_server_gives_a_clear_error(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "TIMEOUT_S", 0.3)
    server.repositories["org/small"] = safetensors_repository(behaviour="slow")
    with pytest.raises(HubError, match="did not answer") as caught:
        open_("org/small", tmp_path)
    assert caught.value.trouble == "slow"


def test_it_can_be_cancelled_at_every_step(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    for calls in range(200):
        control = Cancelling(calls)
        try:
            open_("org/small", tmp_path / str(calls), control=control)
        except Cancelled:
            continue
        assert calls > 2
        return
    pytest.fail("never finished")


def test_waiting_for_a_busy_server_can_be_cancelled(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository(behaviour="500")
    started = time.monotonic()
    with pytest.raises(Cancelled):
        open_("org/small", tmp_path, control=Cancelling(5))
    assert time.monotonic() - started < 5


def test_search(server: HubServer) -> None:
    server.repositories["org/small-llama"] = safetensors_repository()
    server.repositories["org/gated-llama"] = safetensors_repository(gated=True)
    server.repositories["org/other"] = safetensors_repository()
    found = hub.search("llama")
    assert [entry.id for entry in found] == ["org/small-llama", "org/gated-llama"]
    assert [entry.gated for entry in found] == [False, True]
    assert found[0].parameters == 1000


def test_search_offline_is_a_state(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.state().offline_reason
    with pytest.raises(HubError) as caught:
        hub.search("llama")
    assert caught.value.trouble == "offline"
    assert server.requests == []


@pytest.mark.parametrize("answer", [b"<html>log in</html>", b"[]", b"{}", b'{"id": 5}'])
def test_an_answer_that_is_no_hubs(server: HubServer, tmp_path: Path, answer: bytes) -> None:
    """A captive portal or a proxy that answers in the Hub's place."""
    server.repositories["org/small"] = safetensors_repository()
    server.instead = answer
    with pytest.raises(HubError) as caught:
        open_("org/small", tmp_path)
    assert caught.value.trouble == "bad_answer"


def test_a_listing_that_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository(behaviour="info 429")
    with pytest.raises(HubError) as caught:
        open_("org/small", tmp_path)
    assert caught.value.trouble == "rate_limited"


def test_gguf_headers_are_fetched_in_growing_ranges(server: HubServer, tmp_path: Path) -> None:
    content = make_gguf.llama_file(layers=8, tokens=60_000)
    server.repositories["org/gguf"] = Repository({"model-Q8_0.gguf": content, "README.md": b"hello"})
    model = open_("org/gguf", tmp_path)
    assert model.spec.num_layers == 8
    ranges = server.ranges("model-Q8_0.gguf")
    ends = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in ranges]
    assert len(ends) > 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ends))
    assert all(b - a <= d - c for (a, b), (c, d) in pairwise(ends[:-1]))
    assert ends[-1][1] < len(content)


def test_several_ggufs_are_told_apart(server: HubServer, tmp_path: Path) -> None:
    content = make_gguf.llama_file(layers=2, tokens=100)
    server.repositories["org/gguf"] = Repository(
        {"m-Q4_K_M.gguf": content, "m-Q8_0.gguf": content, "mmproj-f16.gguf": content, "sub/m-Q2_K.gguf": content}
    )
    with pytest.raises(BadInput, match=r"m-Q4_K_M\.gguf"):
        open_("org/gguf", tmp_path)
    assert open_("org/gguf:Q8_0", tmp_path).spec.num_layers == 2
    assert open_("org/gguf:q4_k_m", tmp_path).spec.num_layers == 2
    assert open_("org/gguf/sub/m-Q2_K.gguf", tmp_path).spec.num_layers == 2


def test_sharded_repositories(server: HubServer, tmp_path: Path) -> None:
    tensors = llama(CONFIG)
    names = list(tensors)
    files = {"config.json": json.dumps(CONFIG).encode()}
    for number in range(3):
        part = {name: tensors[name] for name in names[number::3]}
        files[f"model-0000{number + 1}-of-00003.safetensors"] = header_bytes(part) + bytes(total_bytes(part))
    server.repositories["org/shards"] = Repository(files)
    assert stored_bytes(open_("org/shards", tmp_path)) == total_bytes(tensors)
    del files["model-00002-of-00003.safetensors"]
    model = open_("org/shards", tmp_path / "again")
    assert model.inventory is not None
    assert not model.inventory.exact
    assert any("missing" in problem for problem in model.problems)


def test_sizes_that_the_listing_hides_come_from_the_range(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository(sizes={"model.safetensors": None, "config.json": None})
    assert stored_bytes(open_("org/small", tmp_path)) == total_bytes(llama(CONFIG))


@pytest.mark.parametrize("name", ["", "nobody", "a/b/c/d", "../x", "org/..", "org/name@../x", "org/na me", "org/n\x00"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        open_(name, tmp_path)


def test_a_proxy_is_respected(server: HubServer, tmp_path: Path) -> None:
    server.repositories["org/small"] = safetensors_repository()
    code = (
        "from pathlib import Path; from kvplanner.source.hub import open as hub; "
        f"print(hub.open_model('org/small', allow_network=True, store=Path({str(tmp_path)!r})).id)"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "HF_ENDPOINT": "http://hub.invalid", "HTTP_PROXY": server.url, "http_proxy": server.url,
        "HF_HOME": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LONG_S)
    assert done.stdout.strip() == "org/small", done.stderr
    assert all(path for path, _ in server.requests)
