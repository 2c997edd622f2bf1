import math

import pytest

from analyzers.errors import InputError
from workbench.commands.words import (
    cosine,
    decibels,
    duration,
    error_line,
    harmless,
    number,
    printable,
    score,
)


def test_an_error_is_one_line_with_what_where_and_what_to_do():
    error = InputError("wrong_shape", "It is\n3 wide.", where="in.npz", hint="Transpose it")
    assert error_line(error) == "error[wrong_shape]: It is 3 wide, in.npz, Transpose it"


def test_names_from_a_model_cannot_steer_the_terminal():
    assert printable("conv\x1b[2J\x07\n1") == "conv\\x1b[2J\\x07 1"
    assert harmless("a  b\u202e") == "a  b\\u202e"
    assert printable("Faltung_ä層") == "Faltung_ä層"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(math.nan), "n/a"),
        (number(0.12345), "0.1235"),
        (cosine(0.999987), "0.99999"),
        (cosine(0.5), "0.5000"),
        (cosine(math.nan), "n/a"),
        (decibels(16.94), "16.9"),
        (decibels(math.inf), "inf"),
        (score(0.3412, ""), "0.3412"),
        (score(16.94, "dB"), "16.9 dB"),
        (score(math.nan, "dB"), "n/a"),
        (score(200.0, "dB"), "exact"),
        (score(-200.0, "dB"), "-200.0 dB"),
        (duration(0.4), "0:00"),
        (duration(61), "1:01"),
        (duration(3725), "1:02:05"),
    ],
)
def test_numbers_say_what_they_are(shown, text):
    assert shown == text
