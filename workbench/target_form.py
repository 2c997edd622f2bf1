"""A form of the Project page: the device that a search's costs are of."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from analyzers.target_profiles import DEFAULT_PROFILE, builtin_profiles, read_profile
from workbench import context
from workbench.projects import Project
from workbench.slots import PROFILE, slot


def target_form(opened: Project) -> None:
    """Ask for the target, by name or by a profile of the user's own."""
    titles = {name: read_profile(name).title for name in builtin_profiles()}
    names = list(titles)
    with st.container(border=True):
        chosen = st.selectbox(
            "Target device",
            names,
            index=names.index(opened.target if opened.target in titles else DEFAULT_PROFILE),
            format_func=lambda name: f"{name}: {titles[name]}",
            disabled=opened.profile is not None,
            help="What leaving INT8 costs, and how plans are stored there. A profile of your own goes first.",
            key=f"project.target.{opened.id}",
        )
        with st.expander("A profile of your own", expanded=opened.profile is not None):
            slot(opened, PROFILE)
    if chosen != opened.target:
        context.keep(replace(opened, target=chosen))
        st.rerun()
