"""The commands of ``tearline``: each parses, hands a job to a worker and prints the answer.

Their modules import numpy and the engine only when a command runs, so that ``--help`` is instant.
"""
