from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import msgspec
import pytest
import torch
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import WeightsError
from codezero.rollout.client import serving
from codezero.weights import versions
from codezero.weights.delta import Layout, Weights, weights_of
from codezero.weights.versions import MANIFEST, HostCopy, Publisher, VersionSource, read_manifest, routes


class Model:
    """Masters that a trainer moves a little."""

    def __init__(self, seed: int = 1) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.tensors = {"w": torch.randn(300, 40, generator=self._generator), "v": torch.randn(64)}

    def step(self) -> dict[str, torch.Tensor]:
        self.tensors["w"] += 1e-5 * torch.randn(300, 40, generator=self._generator)
        return self.tensors


LAYOUT = Layout({"w": (300, 40), "v": (64,)})


def catch_up(source: VersionSource, copy: HostCopy | None = None) -> Weights:
    """The newest version there, fetched by a new copy or by one that has followed so far."""
    newest = read_manifest(source).versions[-1]
    return (copy or HostCopy(source, LAYOUT)).reach(newest.number, newest.state)


def published(folder: Path, count: int, *, anchors: tuple[int, ...] = ()) -> Model:
    model, publisher = Model(), Publisher(folder)
    for number in range(count):
        publisher.publish(number, model.step(), anchor=number in anchors)
    return model


@contextmanager
def served(folder: Path, token: str = "") -> Generator[str]:
    app = web.Application()
    app.add_routes(routes(folder, token))
    with serving(app, "127.0.0.1:0", "test", token) as port:
        yield f"http://127.0.0.1:{port}"


def same(own: Weights, model: Model) -> bool:
    return bool((own.bits == weights_of(model.tensors).bits).all())


Parts = tuple[Model, Publisher, HostCopy]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A model whose first version is published and followed."""
    model, publisher, copy = Model(), Publisher(tmp_path), HostCopy(VersionSource(tmp_path), LAYOUT)
    publisher.publish(0, model.step())
    catch_up(VersionSource(tmp_path), copy)
    return model, publisher, copy


def test_who_follows_has_what_was_published(parts: Parts) -> None:
    model, publisher, copy = parts
    for number in range(1, 12):
        version = publisher.publish(number, model.step(), anchor=number == 5)
        assert same(copy.reach(number, version.state), model)


def test_an_anchor_does_not_break_the_deltas(tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ANCHORS", 9)
    model, publisher, copy = parts
    for number in range(1, 4):
        publisher.publish(number, model.step(), anchor=True)
    for anchor in tmp_path.glob("*.safetensors"):
        anchor.unlink()
    assert same(catch_up(VersionSource(tmp_path), copy), model)


def test_who_lags_too_far_begins_at_an_anchor(tmp_path: Path, parts: Parts) -> None:
    model, publisher, copy = parts
    for number in range(1, 5):
        publisher.publish(number, model.step(), anchor=number in (2, 3))
    assert same(catch_up(VersionSource(tmp_path), copy), model)


def test_old_files_go_and_all_that_are_listed_stay(tmp_path: Path) -> None:
    published(tmp_path, 10, anchors=(3, 6, 9))
    numbers = [version.number for version in read_manifest(VersionSource(tmp_path)).versions]
    assert numbers == [6, 7, 8, 9]
    assert len(list(tmp_path.glob("*.safetensors"))) == 2 and len(list(tmp_path.glob("*.delta"))) == 4


def test_where_a_delta_is_larger_the_whole_is_published(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish(0, {"w": torch.zeros(4)})
    version = publisher.publish(1, {"w": torch.ones(4)})
    assert version.anchor and not version.delta
    copy = HostCopy(VersionSource(tmp_path), Layout({"w": (4,)}))
    assert copy.reach(1, version.state).tensors()["w"].tolist() == [1.0] * 4


def test_over_http_as_in_a_folder(tmp_path: Path) -> None:
    model = published(tmp_path, 5)
    with served(tmp_path, "secret") as url:
        assert same(catch_up(VersionSource(url, "secret")), model)
        for token in ("", "wrong"):
            with pytest.raises(WeightsError, match="answers 401"):
                catch_up(VersionSource(url, token))


def test_nothing_but_versions_is_served(tmp_path: Path) -> None:
    published(tmp_path / "served", 1)
    secret = tmp_path / "secret"
    secret.write_text("key")
    (tmp_path / "served" / "notes").write_text("private")
    (tmp_path / "served" / f"{'0' * 64}.delta").symlink_to(secret)
    with served(tmp_path / "served") as url:
        for name in ("notes", "../secret", "%2e%2e%2fsecret", f"{'0' * 64}.delta", f"{'1' * 64}.delta"):
            with pytest.raises(WeightsError, match="answers 40"), VersionSource(url).file(name, 3):
                pass


def test_a_server_that_sends_more_or_less_than_it_says_is_cut_off(tmp_path: Path) -> None:
    published(tmp_path, 1)
    version = read_manifest(VersionSource(tmp_path)).versions[0]
    with served(tmp_path) as url:
        for size in (version.anchor - 1, version.anchor + 1):
            for source in (VersionSource(url), VersionSource(tmp_path)):
                copy = HostCopy(source, LAYOUT)
                with pytest.raises(WeightsError), copy._fetched(versions.anchor_file(version), size):
                    pass


def test_who_is_not_there_costs_one_line(tmp_path: Path) -> None:
    for source in (VersionSource(tmp_path / "nowhere"), VersionSource("http://127.0.0.1:1"), VersionSource("http://[")):
        with pytest.raises(WeightsError):
            catch_up(source)


def rewritten(folder: Path, change: Callable[[dict[str, object]], dict[str, object]], index: int = -1) -> VersionSource:
    path = folder / MANIFEST
    manifest = msgspec.json.decode(path.read_bytes())
    manifest["versions"][index] = change(manifest["versions"][index])
    path.write_bytes(msgspec.json.encode(manifest))
    return VersionSource(folder)


LIES: dict[str, Callable[[dict[str, object]], dict[str, object]]] = {
    "a state": lambda version: version | {"state": "0" * 64},
    "a content": lambda version: version | {"content": "0" * 64},
    "a size": lambda version: version | {"delta": 1 << 40},
    "no size": lambda version: version | {"delta": 0, "anchor": 0},
    "a number": lambda version: version | {"number": 0},
    "a field": lambda version: version | {"run": "me"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused_and_the_next_anchor_heals(tmp_path: Path, parts: Parts, lie: str) -> None:
    model, publisher, copy = parts
    version = publisher.publish(1, model.step())
    rewritten(tmp_path, LIES[lie])
    with pytest.raises(WeightsError):
        copy.reach(1, version.state)
    assert copy.weights is None
    publisher.publish(2, model.step(), anchor=True)
    assert same(catch_up(VersionSource(tmp_path), copy), model)


def test_weights_that_were_changed_by_somebody_else_are_found_at_an_anchor(tmp_path: Path, parts: Parts) -> None:
    model, publisher, copy = parts
    catch_up(VersionSource(tmp_path), copy).bits[0] ^= 1
    publisher.publish(1, model.step(), anchor=True)
    with pytest.raises(WeightsError, match="version 1 has not the content"):
        catch_up(VersionSource(tmp_path), copy)
    assert same(catch_up(VersionSource(tmp_path), copy), model)


def test_versions_of_another_model_are_refused(tmp_path: Path) -> None:
    published(tmp_path, 2)
    with pytest.raises(WeightsError, match="of another model"):
        catch_up(VersionSource(tmp_path), HostCopy(VersionSource(tmp_path), Layout({"w": (3,)})))


@given(st.binary(max_size=200))
def test_no_manifest_of_a_stranger_raises_anything_else(content: bytes) -> None:
    with TemporaryDirectory() as folder, pytest.raises(WeightsError):
        (Path(folder) / MANIFEST).write_bytes(content)
        read_manifest(VersionSource(Path(folder)))


@pytest.mark.parametrize("stride", [1, 2])
def test_the_list_holds_two_anchors_and_the_deltas_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    monkeypatch.setattr(versions, "ANCHOR_EVERY", 10)
    model, publisher = Model(), Publisher(tmp_path)
    for number in range(1, 60):
        publisher.publish(number * stride + 1, model.step())
    listed = read_manifest(VersionSource(tmp_path)).versions
    assert [at for at, version in enumerate(listed) if version.anchor] == [0, 10] and len(listed) < 20
    assert same(catch_up(VersionSource(tmp_path)), model)


def test_a_token_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, "secret") as url:
        answer = httpx2.get(f"{url}/{MANIFEST}", headers={b"Authorization": b"Bearer \xff"}, trust_env=False)
        assert answer.status_code == 401
