"""Run the fake worker's job as a command would: ``fake_command.py WORKSPACE PARAMS [JSON_FILE]``."""

import json
import sys
from functools import partial
from pathlib import Path

from fake_worker import Answer

from analyzers.deserialize import read_record
from workbench.cli import exit_code
from workbench.commands.options import RunOptions
from workbench.commands.report import show
from workbench.commands.running import run_job

WORKER = (sys.executable, "-P", str(Path(__file__).with_name("fake_worker.py")))


def command():
    output = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    options = RunOptions(Path(sys.argv[1]), None, output)
    answer = run_job("count", json.loads(sys.argv[2]), partial(read_record, Answer), options, worker=WORKER)
    show([f"value: {answer.value:g}"])


sys.exit(exit_code(command))
