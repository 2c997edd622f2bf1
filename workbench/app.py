"""The workbench: ``streamlit run workbench/app.py``. Page frame, sidebar, navigation."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from workbench.sidebar import sidebar

_ASSETS = Path(__file__).with_name("assets")


def _main() -> None:
    # A local file: an icon by name would be fetched from a foreign server for the browser's tab.
    st.set_page_config(page_title="Tearline", page_icon=str(_ASSETS / "favicon.png"), layout="wide")
    # Pages poll while a job runs; the sign for a running script would flicker all the time.
    st.html("<style>[data-testid=stStatusWidget]:has([data-testid*=Running]){display:none}</style>")
    st.logo(str(_ASSETS / "wordmark.png"), size="large")
    page = st.navigation(
        [
            st.Page(
                "app_pages/project.py",
                title="Project",
                icon=":material/folder_open:",
                url_path="project",
                default=True,
                help="Models, samples, task and goal; start the work here.",
            ),
            st.Page(
                "app_pages/layers.py",
                title="Layers",
                icon=":material/stacked_line_chart:",
                url_path="layers",
                help="Where candidate and reference part, layer by layer.",
            ),
            st.Page(
                "app_pages/diagnosis.py",
                title="Diagnosis",
                icon=":material/troubleshoot:",
                url_path="diagnosis",
                help="What is wrong, why, and what to do about it.",
            ),
            st.Page(
                "app_pages/bisect.py",
                title="Bisect",
                icon=":material/compress:",
                url_path="bisect",
                help="Which layers break the output, with proof.",
            ),
            st.Page(
                "app_pages/fallback.py",
                title="Fallback",
                icon=":material/trending_up:",
                url_path="fallback",
                help="The smallest set of layers to keep in FP16.",
            ),
            st.Page(
                "app_pages/export.py",
                title="Export",
                icon=":material/ios_share:",
                url_path="export",
                help="The answer in the form that your toolchain reads.",
            ),
        ]
    )
    with st.sidebar:
        sidebar()
    page.run()


_main()
