"""The ``tearline`` command: results on stdout, progress and errors on stderr.

Exit codes: 0 done, 1 the answer is "no", 2 the input is wrong, 128 + N stopped by signal N.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, cast

import typer

from analyzers.errors import TearlineError
from workbench.commands import bisect, compare, demo, diagnose, export, quantize, search, ui
from workbench.commands.running import StoppedError
from workbench.commands.words import bad_option, error_line

_EXAMPLES = r"""
tearline quantize model.onnx --data calibration/ --task task.yaml -o int8.onnx
tearline compare model.onnx int8.onnx --data photos/ --task task.yaml
tearline diagnose model.onnx int8.onnx --data photos/ --task task.yaml
tearline search model.onnx int8.onnx --data photos/ --task task.yaml \
    --annotations coco.json --max-drop 0.01 --json search.json
tearline export search.json --format onnx -o mixed.onnx
"""


def _epilog(examples: str) -> str:
    # The control character keeps the lines as they are.
    return "\b\nExamples:" + "".join(f"\n  {line}" for line in examples.strip().splitlines())


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

app = typer.Typer(
    name="tearline",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=_epilog(_EXAMPLES),
    context_settings=_CONTEXT,
)
for _command, _examples in (
    (quantize.quantize, quantize.EXAMPLES),
    (compare.compare, compare.EXAMPLES),
    (diagnose.diagnose, diagnose.EXAMPLES),
    (bisect.bisect, bisect.EXAMPLES),
    (search.search, search.EXAMPLES),
    (export.export, export.EXAMPLES),
    (demo.demo, demo.EXAMPLES),
    (ui.ui, ui.EXAMPLES),
):
    app.command(epilog=_epilog(_examples), context_settings=_CONTEXT)(_command)

# What typer raises for options that it cannot parse; it is in another module from version to version.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"tearline {version('tearline')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find the layer where INT8 accuracy tears, say why, and prove the cheapest FP16 fallback."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Names in models may hold anything; a terminal that cannot show it gets an escape instead.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    command = typer.main.get_command(app)
    return exit_code(lambda: command(arguments, prog_name="tearline", standalone_mode=False))


def exit_code(action: Callable[[], object]) -> int:
    """Do something and return the exit code; this is where errors turn into words."""
    try:
        code = action()
        sys.stdout.flush()
    except TearlineError as error:
        return _fail(error)
    except StoppedError as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except _UsageError as error:
        hint = f"See {error.ctx.command_path} --help" if error.ctx is not None else ""
        return _fail(bad_option(error.format_message(), hint))
    return code if isinstance(code, int) else 0


def _fail(error: TearlineError) -> int:
    print(error_line(error), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
