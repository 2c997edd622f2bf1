"""What fallback sets of a pair cost on the target that the user chose."""

from __future__ import annotations

from analyzers.bench import Bench, samples_of
from analyzers.cost import Price, make_price, rates_of, uncounted_notice
from analyzers.project import Pair
from analyzers.records import Notice
from analyzers.target_profiles import read_profile
from analyzers.workload import workload_of


def price_of(pair: Pair, bench: Bench, sample: int) -> tuple[Price, str, tuple[Notice, ...]]:
    """Return the price of fallback sets, the name of the target, and notices about both.

    Args:
        pair: The models.
        bench: Inputs and samples.
        sample: Index of the sample whose shapes count.

    Raises:
        InputError: The profile is unknown or malformed.
    """
    inputs, layers = bench.inputs, pair.pairing.layers
    profile = read_profile(inputs.target_profile)
    rates, assumed = rates_of(profile, inputs.precision)
    feeds = samples_of(bench)[sample].feeds
    shapes = {name: array.shape for name, array in feeds.items()}
    work = workload_of(pair.reference.ir, layers, shapes)
    price = make_price(layers, work, rates, precision=inputs.precision, rule=inputs.rule)
    return price, profile.name, (*assumed, *uncounted_notice(work))
