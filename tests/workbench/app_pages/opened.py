"""Open a page without a browser and read what it says."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

import workbench

APP = str(Path(workbench.__file__).with_name("app.py"))


def open_app(page: str = "app_pages/project.py", **address: str) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=60)
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    if page != "app_pages/project.py":
        app.switch_page(page)
        for name, value in address.items():
            app.query_params[name] = value
        app.run()
    assert not app.exception, app.exception
    return app


def words(app: AppTest) -> str:
    parts = [*app.markdown, *app.caption, *app.title, *app.subheader, *app.error, *app.info, *app.warning]
    return "\n".join(str(p.value) for p in parts).replace("\\", "")


def address(app: AppTest, name: str) -> str:
    value = app.query_params.get(name, "")
    return value if isinstance(value, str) else value[0]


def labels(app: AppTest) -> list[str]:
    return [b.label for b in app.button]
