"""A real browser on the real app: Debian's Chromium, driven by Playwright; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import workbench
from tests import networks
from workbench.store import WORKSPACE_VARIABLE
from workbench.uploads import DATA_ROOT_VARIABLE

START_SECONDS = 60
HOSTILE_NAME = "<img src=x onerror=\"document.title='torn'\">"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True)
class Files:
    """What a user uploads.

    Attributes:
        reference: FP32 model.
        candidate: Its INT8 twin, in which one layer has no resolution left.
        data: A few samples.
        many: So many samples that a job takes a while.
    """

    reference: Path
    candidate: Path
    data: Path
    many: Path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    model = networks.build(networks.PLAIN, networks.PLAIN_SHAPES)
    _spoil(model, "w1")
    _rename(model, "relu0", HOSTILE_NAME)
    # Calibrated on all of the samples: on fewer, other layers clip as well and no single one is to blame.
    feeds = networks.samples(model, 8)
    reference, candidate = networks.quantized(model, folder, per_channel=False, feeds=feeds)
    samples = np.concatenate([feed["image"] for feed in feeds])
    np.savez(folder / "data.npz", image=samples)
    np.savez(folder / "many.npz", image=np.tile(samples, (4000, 1, 1, 1)))
    return Files(reference, candidate, folder / "data.npz", folder / "many.npz")


def _rename(model: onnx.ModelProto, name: str, new: str) -> None:
    next(n for n in model.graph.node if n.name == name).name = new


def _spoil(model: onnx.ModelProto, name: str) -> None:
    """Make one channel of a weight far louder than the others, so that one scale does not fit them all."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    values = onnx.numpy_helper.to_array(tensor).copy()
    values[0] *= 400
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the app is; it runs as a user starts it."""
    folder = tmp_path_factory.mktemp("app")
    port = _free_port()
    app = Path(workbench.__file__).with_name("app.py")
    environment = {**os.environ, WORKSPACE_VARIABLE: str(folder / "workspace")}
    environment.pop(DATA_ROOT_VARIABLE, None)
    command = [sys.executable, "-m", "streamlit", "run", str(app), f"--server.port={port}"]
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(timeout=30)


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A tab of a visitor of its own, which may not talk to anyone but the app."""
    visitor = browser.new_context(viewport={"width": 1440, "height": 1000})
    tab = visitor.new_page()
    foreign: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda r: foreign.append(r.url) if not _is_own(r.url, address) else None)
    tab.on("pageerror", lambda e: errors.append(str(e)))
    tab.set_default_timeout(60_000)
    tab.goto(address)
    yield tab
    visitor.close()
    assert foreign == []
    assert errors == []


def _is_own(url: str, address: str) -> bool:
    return url.startswith((address, address.replace("http:", "ws:"), "data:", "blob:"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the app ended with exit code {server.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 (our own address)
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the app did not start")
