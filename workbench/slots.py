"""One place for one file of a project: what is in it, or a way to fill it by upload or by path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import UploadedFile

from analyzers.errors import InputError
from workbench import context, state, widgets
from workbench.probe import probe
from workbench.projects import NEW_PROJECT, Project, Slot, Source, source_of, with_source
from workbench.uploads import (
    DATA_ROOT_VARIABLE,
    Role,
    Staged,
    data_root,
    list_local,
    local_file,
    stage_file,
    stage_model,
    stage_set,
)

UPLOAD_LIMIT_MB = 2048


@dataclass(frozen=True, slots=True)
class SlotKind:
    """How a slot is filled.

    Attributes:
        slot: Which one.
        role: What may be in it.
        title: Its name on the page.
        wanted: What to drop there, in words.
        types: File endings that the browser offers.
    """

    slot: Slot
    role: Role
    title: str
    wanted: str
    types: tuple[str, ...]


_WEIGHTS = ("onnx", "data", "bin", "weight", "weights", "pb", "ext")
_SET = ("zip", "jpg", "jpeg", "png", "bmp", "webp", "tif", "tiff", "npz")

REFERENCE = SlotKind(
    "reference", "model", "Reference model", "FP32 ONNX, with its external data if it has any", _WEIGHTS
)
CANDIDATE = SlotKind(
    "candidate", "model", "Candidate model", "Quantized ONNX, QDQ or QOperator form", _WEIGHTS
)
DATA = SlotKind("data", "set", "Evaluation set", "A zip of images, images, or .npz tensors", _SET)
CALIBRATION = SlotKind(
    "calibration", "set", "Calibration set", "A zip of images, images, or .npz tensors", _SET
)
CANDIDATE_DATA = SlotKind(
    "candidate_data",
    "set",
    "What the candidate was fed",
    "The same samples as the board or the toolchain read them, as .npz or images",
    _SET,
)
NAME_MAP = SlotKind(
    "name_map",
    "name_map",
    "Name map",
    "JSON: reference tensor to candidate tensor, where names and structure cannot tell",
    ("json",),
)
ANNOTATIONS = SlotKind(
    "annotations", "annotations", "Annotations", "COCO json, or labels as csv or json", ("json", "csv", "txt")
)
TASK = SlotKind(
    "task", "task", "Task file", "YAML, with the files that it names", ("yaml", "yml", "npy", "json", "txt")
)
PROFILE = SlotKind("profile", "profile", "Target profile", "YAML, see docs/targets.md", ("yaml", "yml"))


def slot(project: Project, kind: SlotKind) -> None:
    """Draw a slot; saves the project and starts over when a file came."""
    source = source_of(project, kind.slot)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{kind.title}**", width="stretch")
            if source is not None:
                with st.popover("Change", type="tertiary"):
                    _fill(project, kind, source)
                    if st.button("Remove", icon=":material/close:", key=f"project.{kind.slot}.remove"):
                        context.keep(with_source(project, kind.slot, None))
                        st.rerun()
        if source is None:
            _fill(project, kind, None)
        else:
            _facts(source)
            if source.error is not None and source.error.code == "external_data_missing":
                _fill(project, kind, source)


def _facts(source: Source) -> None:
    size = f" :gray[{widgets.size_words(source.size_bytes)}]" if source.size_bytes else ""
    st.markdown(f"{widgets.plain(source.label)}{size}")
    if source.error is not None:
        widgets.failure(source.error)
    elif source.summary:
        st.caption(widgets.plain(source.summary))


def _fill(project: Project, kind: SlotKind, source: Source | None) -> None:
    """Offer to upload, or to name a file on this machine."""
    root = data_root()
    by_path = False
    if root is not None:
        choice = st.segmented_control(
            "From",
            ("Upload", "This machine"),
            default="Upload",
            required=True,
            key=f"project.{kind.slot}.from",
            label_visibility="collapsed",
        )
        by_path = choice == "This machine"
    if by_path and root is not None:
        text = st.selectbox(
            "Path",
            list_local(root, kind.role),
            index=None,
            accept_new_options=True,
            placeholder=f"Below {root}",
            key=f"project.{kind.slot}.path.{_taken(kind)}",
            label_visibility="collapsed",
        )
        if text:
            _take(project, kind, lambda: local_file(text, root))
        return
    files = st.file_uploader(
        kind.wanted,
        type=list(kind.types),
        accept_multiple_files=True,
        key=f"project.{kind.slot}.upload.{_taken(kind)}",
        max_upload_size=UPLOAD_LIMIT_MB,
        help=f"Larger than 2 GB? Set {DATA_ROOT_VARIABLE} to a folder and open the file by its path.",
    )
    if files:
        _take(project, kind, lambda: _stage(kind.role, files, source), files)


def _stage(role: Role, files: Sequence[UploadedFile], source: Source | None) -> Staged:
    workspace = context.jobs().workspace
    match role:
        case "model":
            lacks = source is not None and source.error is not None
            known = Staged(source.path, source.label, 0) if source is not None and lacks else None
            return stage_model(workspace, files, known=known)
        case "set":
            return stage_set(workspace, files)
        case "annotations" | "task" | "name_map" | "profile":
            return stage_file(workspace, files, role)


def _take(
    project: Project, kind: SlotKind, bring: Callable[[], Staged], files: Sequence[UploadedFile] = ()
) -> None:
    """Bring a file into the project, look at it, and start over.

    Another upload may interrupt this run wherever Streamlit is called. Until the project is saved nothing is
    let go, so the next run just does it again.
    """
    try:
        with st.spinner("Looking at it..."):
            staged = bring()
            source = look_at(staged, kind.role)
            changed = with_source(context.project() or project, kind.slot, source)
            if staged.annotations is not None and changed.annotations is None:
                beside = Staged(staged.annotations, f"from {staged.label}", staged.annotations.stat().st_size)
                changed = with_source(changed, "annotations", look_at(beside, "annotations"))
            context.keep(_named(changed))
            state.count_upload(kind.slot)
            _release(files)
    except InputError as error:
        widgets.failure(error)
        return
    st.rerun()


def _named(project: Project) -> Project:
    """Call a project that has no name yet after its reference."""
    if project.name != NEW_PROJECT or project.reference is None:
        return project
    return replace(project, name=PurePath(project.reference.label).stem[:80] or NEW_PROJECT)


def _taken(kind: SlotKind) -> int:
    return state.session().uploads.get(kind.slot, 0)


def look_at(staged: Staged, role: Role) -> Source:
    """Return a staged file with what is in it."""
    facts = probe(role, staged.path)
    return Source(staged.path, staged.label, staged.size_bytes, facts.summary, facts.error)


def _release(files: Sequence[UploadedFile]) -> None:
    """Let the server forget uploads that are on disk by now; it would keep them in memory."""
    running = get_script_run_ctx()
    kept = None if running is None else running.uploaded_file_mgr
    if running is not None and isinstance(kept, MemoryUploadedFileManager):
        for file in files:
            kept.remove_file(session_id=running.session_id, file_id=file.file_id)
