"""The main job by hand: upload, compare, bisect, search, export; reload and cancel on the way."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import HOSTILE_NAME, Files

JOB_MS = 180_000
expect.set_options(timeout=60_000)


def new_project(page: Page) -> None:
    page.get_by_role("button", name="New project").click()
    page.get_by_text("Reference model", exact=True).wait_for()


def upload(page: Page, title: str, *paths: Path) -> None:
    """Drop files into the slot of that title and wait until the slot shows them."""
    slot = page.get_by_test_id("stFileUploader").filter(has_text=title)
    with page.expect_file_chooser() as chooser:
        slot.get_by_role("button").last.click()
    chooser.value.set_files([str(p) for p in paths])
    page.get_by_text(paths[0].name, exact=False).first.wait_for()


def set_up(page: Page, files: Files, data: Path) -> None:
    new_project(page)
    upload(page, "FP32 ONNX", files.reference)
    expect(main(page)).to_contain_text("FP32 · 10 operators")
    upload(page, "Quantized ONNX", files.candidate)
    expect(main(page)).to_contain_text("INT8, QDQ form")
    upload(page, "A zip of images", data)
    expect(main(page)).to_contain_text("3x16x16 float32")
    page.get_by_role("combobox", name="Task", exact=True).click()
    page.get_by_role("option", name="No labels: worst output slice").click()
    expect(page.get_by_text("must have at least 20 dB")).to_be_visible()


def main(page: Page) -> Locator:
    return page.get_by_test_id("stMain")


def go(page: Page, name: str) -> None:
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, level=1).wait_for()


def test_the_whole_way_from_upload_to_download(page: Page, files: Files) -> None:
    set_up(page, files, files.data)

    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_role("heading", name="Layers", level=1).wait_for()
    page.get_by_role("button", name="Run again").wait_for(timeout=JOB_MS)
    expect(main(page)).to_contain_text(re.compile("fall(s)? below cosine 0.99"))
    page.get_by_test_id("stVegaLiteChart").first.wait_for()
    page.get_by_test_id("stDataFrame").first.wait_for()

    # Models choose the names of their layers; the page shows them and does nothing else with them.
    page.goto(f"{page.url}&layer={quote(HOSTILE_NAME)}")
    expect(main(page).get_by_test_id("stCode").first).to_contain_text("<img src=x")
    assert page.locator("img[src=x]").count() == 0
    expect(page).not_to_have_title("torn")

    # A click on a point selects the operator: sheet, table and address follow.
    page.locator("[data-testid=stVegaLiteChart] path[aria-roledescription=circle]").nth(3).click()
    expect(page).to_have_url(re.compile("layer=(?!%3C)"))
    selected = re.search(r"layer=([^&]+)", page.url)
    assert selected is not None
    expect(main(page).get_by_test_id("stCode").first).to_contain_text(selected[1])
    page.reload()
    page.get_by_role("heading", name="Layers", level=1).wait_for()
    expect(main(page).get_by_test_id("stCode").first).to_contain_text(selected[1])

    go(page, "Diagnosis")
    page.get_by_role("button", name="Diagnose", exact=True).click()
    page.get_by_role("button", name="Run again").wait_for(timeout=JOB_MS)
    expect(main(page).get_by_test_id("stAlert").first).to_contain_text("conv1")
    expect(main(page)).to_contain_text("What was checked")
    main(page).get_by_role("button", name="conv1").first.click()
    page.get_by_role("heading", name="Layers", level=1).wait_for()
    expect(page).to_have_url(re.compile("layer="))

    go(page, "Bisect")
    page.get_by_role("button", name="Bisect", exact=True).click()
    page.get_by_role("button", name="Run again").wait_for(timeout=JOB_MS)
    expect(main(page)).to_contain_text("One layer breaks the output")
    expect(main(page)).to_contain_text("It is conv1")
    expect(main(page)).to_contain_text("confirmed by repair")

    go(page, "Fallback")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="Run again").wait_for(timeout=JOB_MS)
    expect(main(page)).to_contain_text("Keep 1 layer in FP16")
    expect(main(page)).to_contain_text("minimal")
    page.get_by_test_id("stVegaLiteChart").first.wait_for()

    go(page, "Export")
    expect(page.get_by_role("radio", name="onnx-sim")).to_be_checked()
    page.get_by_role("button", name="Write it").click()
    with page.expect_download(timeout=JOB_MS) as download:
        page.get_by_role("button", name="Download").first.click(timeout=JOB_MS)
    assert download.value.suggested_filename == "reference_fallback.onnx"
    assert Path(download.value.path()).stat().st_size > 1000


def test_a_reload_finds_the_job_and_cancel_stops_it(page: Page, files: Files) -> None:
    set_up(page, files, files.many)
    page.get_by_role("button", name="Compare", exact=True).click()
    cancel = page.get_by_role("button", name="Cancel")
    cancel.wait_for()
    expect(page).to_have_url(re.compile("job=[0-9a-f]{32}"))
    job = re.search("job=([0-9a-f]{32})", page.url)
    expect(main(page)).to_contain_text("32000", timeout=JOB_MS)
    page.reload()
    cancel.wait_for()
    assert job is not None
    assert job[1] in page.url
    cancel.click()
    expect(main(page)).to_contain_text("This run was cancelled")
    expect(page.get_by_test_id("stSidebar")).to_contain_text("cancelled")


def test_a_name_is_shown_as_it_was_typed(page: Page) -> None:
    name = r"**b** $x$ :red[r] <i>h</i> [l](/x) `c` :smile: # ~s~ \d | &lt; {{e}}"
    new_project(page)
    page.get_by_text("Name and samples").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_test_id("stSidebar")).to_contain_text(name)
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def test_an_address_in_a_name_is_no_link(page: Page) -> None:
    new_project(page)
    page.get_by_text("Name and samples").click()
    page.get_by_label("Name", exact=True).fill("see http://a.example www.b.example c@d.example")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_test_id("stSidebar")).to_contain_text("see http")
    assert page.locator("a[href*=example]").count() == 0


def test_a_file_that_is_no_model_is_refused_in_words(page: Page, tmp_path: Path) -> None:
    new_project(page)
    fake = tmp_path / "weights.onnx"
    fake.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    upload(page, "FP32 ONNX", fake)
    expect(main(page)).to_contain_text("Git LFS pointer")
    expect(main(page)).to_contain_text("What to do")


def test_the_theme_follows_the_system_and_pages_open_in_the_dark(page: Page, address: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(address)
    page.get_by_role("heading", name="Find the layer").wait_for()
    background = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert background == "rgb(18, 23, 29)"
