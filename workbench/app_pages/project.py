"""Project: what is compared, on which samples, for which goal; the work starts here."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import streamlit as st

from analyzers.errors import InputError
from workbench import context, state, widgets
from workbench.command_line import command_line
from workbench.demo import builtin_tasks, demo_project, missing_files
from workbench.goal_form import goal_form, quantize_form
from workbench.job_records import JobStatus
from workbench.projects import (
    NEW_PROJECT,
    Kind,
    Project,
    inputs_of,
    list_projects,
    missing_for,
    new_project,
    with_source,
)
from workbench.run_page import PAGES, start_button
from workbench.runs import all_runs, request_for, runs_of, start_run
from workbench.slots import (
    ANNOTATIONS,
    CALIBRATION,
    CANDIDATE,
    CANDIDATE_DATA,
    DATA,
    NAME_MAP,
    REFERENCE,
    TASK,
    look_at,
    slot,
)
from workbench.target_form import target_form
from workbench.uploads import Staged

_SHOWN_PROJECTS = 8
_ACTIONS: tuple[tuple[Kind, str, str], ...] = (
    ("compare", "Compare", "Where do the two part, layer by layer?"),
    ("diagnose", "Diagnose", "What is wrong, why, and what is to be done?"),
    ("bisect", "Bisect", "Which layers break the output?"),
    ("search", "Search", "Which fewest layers in FP16 bring the score back?"),
)

# Jobs run one after the other; what `tearline demo` shows comes first.
_DEMO_ORDER: tuple[Kind, ...] = ("compare", "bisect", "search", "diagnose")


def page() -> None:
    """Draw the page."""
    opened = context.project()
    if opened is None:
        state.show_address()
        _welcome()
        return
    state.show_address(project=opened.id)
    _project(opened)


def _welcome() -> None:
    st.space("medium")
    st.title("Find the layer where INT8 accuracy tears", anchor=False)
    st.markdown(
        "Give it the FP32 model and its INT8 twin. It shows where they part, proves which layers break the "
        "output, and finds the fewest layers that have to stay in FP16 to bring the score back."
    )
    lacking = missing_files()
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(
            "Try the demo",
            type="primary",
            icon=":material/play_arrow:",
            disabled=bool(lacking),
            help=f"Not in this installation: {', '.join(lacking)}" if lacking else None,
        ):
            try:
                _open_demo()
            except InputError as error:
                widgets.failure(error)
        if st.button("New project", icon=":material/add:"):
            context.keep(new_project(NEW_PROJECT))
            st.rerun()
    st.caption("The demo brings a small detector and pictures of its own. Nothing leaves this machine.")
    _recent()


def _open_demo() -> None:
    """Open the demo and start what it lacks; results of an earlier visit are shown at once."""
    jobs = context.jobs()
    demo = demo_project()
    same = [p for p in list_projects(jobs.workspace) if p.is_demo and _same_inputs(p, demo)]
    opened = same[0] if same else demo
    context.keep(opened)
    for kind in _DEMO_ORDER:
        if not any(s.state in ("done", "queued", "running") for s in runs_of(jobs, opened, kind)):
            opened, _ = start_run(jobs, opened, kind)
    st.switch_page(PAGES["compare"])


def _same_inputs(one: Project, other: Project) -> bool:
    workspace = context.jobs().workspace
    return inputs_of(one, workspace) == inputs_of(other, workspace)


def _recent() -> None:
    found = list_projects(context.jobs().workspace)
    runs = [s for s in context.jobs().list() if s.kind in PAGES]
    known = {job_id for p in found for job_id in p.runs}
    strangers = [s for s in runs if s.id not in known]
    if not found and not strangers:
        return
    st.space("small")
    st.subheader("Projects", anchor=False)
    for project in found[:_SHOWN_PROJECTS]:
        _recent_row(project)
    if strangers:
        with st.expander(f"{len(strangers)} runs of the command line", icon=":material/terminal:"):
            for status in strangers[:_SHOWN_PROJECTS]:
                _stranger_row(status)


def _recent_row(project: Project) -> None:
    latest = all_runs(context.jobs(), project)[:1]
    with st.container(horizontal=True, vertical_alignment="center", border=True):
        with st.container(width="stretch", gap="xxsmall"):
            st.markdown(f"**{widgets.plain(project.name)}**")
            st.caption(f"{widgets.plain(_models(project))} · {widgets.ago(time.time() - project.created)}")
        for status in latest:
            widgets.state_badge(status)
        st.button("Open", key=f"open.{project.id}", on_click=state.open_project, args=(project.id,))


def _stranger_row(status: JobStatus) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        widgets.state_badge(status)
        st.caption(widgets.ago(time.time() - status.created), width="stretch")
        if st.button("Open", key=f"adopt.{status.id}"):
            state.open_project("", asked_job=status.id)
            st.rerun()


def _models(project: Project) -> str:
    names = [s.label for s in (project.reference, project.candidate) if s is not None]
    return " and ".join(names) or "no models yet"


def _project(opened: Project) -> None:
    widgets.page_head(widgets.plain(opened.name), "What is compared, on which samples, for which goal.")
    inputs, actions = st.columns([5, 2], gap="large")
    with inputs:
        _inputs(opened)
    with actions:
        _actions(opened)


def _inputs(opened: Project) -> None:
    st.subheader("Models", anchor=False)
    left, right = st.columns(2)
    with left:
        slot(opened, REFERENCE)
    with right:
        _candidate(opened)
    st.subheader("Samples and score", anchor=False)
    left, right = st.columns(2)
    with left:
        slot(opened, DATA)
        if not opened.metric:
            slot(opened, ANNOTATIONS)
    with right:
        _task(opened)
    st.subheader("Goal of the search", anchor=False)
    goal_form(opened)
    target_form(opened)
    with st.expander("For the diagnosis", icon=":material/troubleshoot:"):
        _diagnosis(opened)
    with st.expander("Name and samples", icon=":material/tune:"):
        _details(opened)


def _candidate(opened: Project) -> None:
    if opened.is_made_here:
        slot(opened, CALIBRATION)
        quantize_form(opened)
    else:
        slot(opened, CANDIDATE)
    chosen = st.toggle(
        "Quantize the reference here",
        value=opened.is_made_here,
        key=f"project.made_here.{opened.id}",
        help="Make the candidate from a calibration set with onnxruntime's static quantizer.",
    )
    if chosen != opened.is_made_here:
        context.keep(replace(opened, is_made_here=chosen))
        st.rerun()


def _task(opened: Project) -> None:
    builtin = builtin_tasks()
    own, sliced, whole = (
        "A task file of your own",
        "No labels: worst output slice",
        "No labels: whole outputs",
    )
    options = [*builtin, own, sliced, whole]
    with st.container(border=True):
        chosen = st.selectbox(
            "Task",
            options,
            index=_task_index(opened, options, builtin, (own, sliced, whole)),
            placeholder="How pictures become tensors, and outputs a score",
            key=f"project.task.choice.{opened.id}",
        )
        if chosen in builtin and opened.task is not None:
            st.caption(widgets.plain(opened.task.summary))
    _change_task(opened, chosen, builtin, (own, sliced, whole))
    if chosen == own:
        slot(opened, TASK)


def _task_index(
    opened: Project, options: list[str], builtin: dict[str, Path], others: tuple[str, str, str]
) -> int | None:
    own, sliced, whole = others
    if opened.metric:
        return options.index(sliced if opened.metric == "slice-sqnr" else whole)
    if opened.task is None:
        return None
    name = next((n for n, path in builtin.items() if path == opened.task.path), own)
    return options.index(name)


def _change_task(
    opened: Project, chosen: str | None, builtin: dict[str, Path], others: tuple[str, str, str]
) -> None:
    _, sliced, whole = others
    metrics = {sliced: "slice-sqnr", whole: "sqnr"}
    if chosen in builtin and (opened.metric or opened.task is None or opened.task.path != builtin[chosen]):
        path = builtin[chosen]
        with st.spinner("Looking at it..."):
            source = look_at(Staged(path, path.name, path.stat().st_size), "task")
        context.keep(replace(with_source(opened, "task", source), metric=""))
        st.rerun()
    if chosen in metrics and opened.metric != metrics[chosen]:
        context.keep(replace(opened, metric=metrics[chosen]))
        st.rerun()
    is_builtin = opened.task is not None and opened.task.path in builtin.values()
    if chosen == others[0] and (opened.metric or is_builtin):
        context.keep(replace(with_source(opened, "task", None), metric=""))
        st.rerun()


def _diagnosis(opened: Project) -> None:
    st.caption(
        "Optional. With these a diagnosis can tell whether the ranges were measured on the right pictures, "
        "and whether both sides were fed the same."
    )
    left, right = st.columns(2)
    with left:
        if opened.is_made_here:
            st.caption("The calibration set is above, beside the reference.")
        else:
            slot(opened, CALIBRATION)
    with right:
        slot(opened, CANDIDATE_DATA)


def _details(opened: Project) -> None:
    with st.form(f"project.details.{opened.id}", border=False):
        name = st.text_input("Name", value=opened.name, max_chars=80)
        samples = st.text_input(
            "Samples",
            value=opened.samples,
            placeholder="all",
            help="N: the first N in name order. START::STEP: every STEP-th from START.",
        )
        if st.form_submit_button("Save"):
            context.keep(replace(opened, name=name.strip() or opened.name, samples=samples.strip()))
            st.rerun()
    slot(opened, NAME_MAP)


def _actions(opened: Project) -> None:
    st.subheader("Run", anchor=False)
    said: set[str] = set()
    fresh = [kind for kind, _, _ in _ACTIONS if not runs_of(context.jobs(), opened, kind)]
    for kind, verb, question in _ACTIONS:
        missing = missing_for(opened, kind)
        runs = runs_of(context.jobs(), opened, kind)
        with st.container(border=True):
            st.markdown(question)
            start_button(opened, kind, label=verb, is_primary=kind in fresh[:1], key=f"project.{kind}")
            news = [need for need in missing if need not in said]
            said.update(missing)
            if news:
                st.caption(f"Needs {', '.join(news)}.")
            if runs:
                with st.container(horizontal=True, vertical_alignment="center"):
                    widgets.state_badge(runs[0], with_kind=False)
                    if st.button(
                        "Show", type="tertiary", icon=":material/arrow_forward:", key=f"show.{kind}"
                    ):
                        st.switch_page(PAGES[kind])
    ready = [kind for kind, _, _ in _ACTIONS if not missing_for(opened, kind)]
    if ready:
        lines = [command_line(request_for(opened, kind, context.jobs())) for kind in ready]
        widgets.command("\n\n".join(lines))


if __name__ == "__main__":
    page()
