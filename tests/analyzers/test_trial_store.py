from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import InputError
from analyzers.records import Plan
from analyzers.trial_store import StoredTrial, TrialKey, TrialStore, code_version


def key_of(*fallback: str, mode: str = "as-executed", samples: str = "s") -> TrialKey:
    return TrialKey("m", "plan", Plan(frozenset(fallback)), samples, "ap", mode)  # type: ignore[arg-type]


def test_a_trial_comes_back_with_its_observations(tmp_path: Path) -> None:
    trial = StoredTrial(0.341, {"AP50": 0.5, "APs": math.nan}, 2, 4.5)
    rows = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 6), np.float64)]
    with TrialStore(tmp_path / "t.sqlite") as store:
        store.put(key_of("a", "b"), trial, ["one", "two"], rows)
    with TrialStore(tmp_path / "t.sqlite") as store:
        back = store.get(key_of("b", "a"))
        names, observations = store.observations(key_of("a", "b"))
    assert back is not None
    assert (back.score, back.samples, back.seconds) == (0.341, 2, 4.5)
    assert back.details["AP50"] == 0.5
    assert math.isnan(back.details["APs"])
    assert names == ("one", "two")
    for got, want in zip(observations, rows, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.0])
def test_undefined_and_infinite_scores_come_back_as_they_were(tmp_path: Path, score: float) -> None:
    with TrialStore(tmp_path / "t.sqlite") as store:
        store.put(key_of(), StoredTrial(score, {}, 1, 0.0), ["x"], [np.zeros(1)])
        back = store.get(key_of())
    assert back is not None
    assert back.score == score or (math.isnan(back.score) and math.isnan(score))


def test_anything_that_a_score_depends_on_makes_another_key() -> None:
    keys = [
        key_of("a"),
        key_of("b"),
        key_of(),
        key_of("a", mode="literal"),
        key_of("a", samples="other"),
        TrialKey("m", "plan", Plan(frozenset("a"), "fp32"), "s", "ap", "as-executed"),
        TrialKey("m", "plan", Plan(frozenset("a"), "fp16", "hybrid"), "s", "ap", "as-executed"),
        TrialKey("m", "candidate", None, "s", "ap", "as-executed"),
        TrialKey("m", "reference", None, "s", "ap", "as-executed"),
        TrialKey("other", "plan", Plan(frozenset("a")), "s", "ap", "as-executed"),
        TrialKey("m", "plan", Plan(frozenset("a")), "s", "top1", "as-executed"),
        TrialKey("m", "plan", Plan(frozenset("a")), "s", "ap", "as-executed", "other code"),
    ]
    assert len({key.digest for key in keys}) == len(keys)
    assert code_version() == code_version()


def test_the_first_of_two_equal_trials_stays(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "t.sqlite") as one, TrialStore(tmp_path / "t.sqlite") as two:
        one.put(key_of("a"), StoredTrial(0.1, {}, 1, 1.0), ["x"], [np.zeros(1)])
        two.put(key_of("a"), StoredTrial(0.2, {}, 1, 1.0), ["x"], [np.ones(1)])
        back = one.get(key_of("a"))
        assert back is not None
        assert back.score == 0.1
        assert two.observations(key_of("a"))[1][0] == 0.0
        assert one.get(key_of("b")) is None


_WRITER = """
import sys
from pathlib import Path
import numpy as np
from analyzers.records import Plan
from analyzers.trial_store import StoredTrial, TrialKey, TrialStore
store = TrialStore(Path(sys.argv[1]))
for number in range(100000):
    key = TrialKey("m", "plan", Plan(frozenset([str(number)])), "s", "ap", "as-executed")
    rows = [np.full(2000, number, np.float32)] * 20
    store.put(key, StoredTrial(number, {}, 20, 0.0), [str(i) for i in range(20)], rows)
    print(number, flush=True)
"""


def test_a_kill_in_the_middle_of_writing_loses_no_finished_trial(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    for stop_after in (3, 11, 20):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            seen = -1
            for line in writer.stdout:
                seen = int(line)
                if seen >= stop_after:
                    writer.kill()
                    break
        with TrialStore(path) as store:
            for number in range(seen + 1):
                key = key_of(str(number))
                trial = store.get(key)
                assert trial is not None
                assert trial.score == number
                assert len(store.observations(key)[0]) == 20
    integrity = sqlite3.connect(path)
    assert integrity.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    integrity.close()


def test_a_file_that_is_no_data_base_is_an_input_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"this is a text file and no data base at all" * 40)
    with pytest.raises(InputError) as caught:
        TrialStore(path)
    assert caught.value.code == "workspace_not_writable"
    assert str(path) in str(caught.value)
