"""Models that torch compiles around the operator, on the card."""

import pytest

pytestmark = pytest.mark.card


def test_a_compiled_model_gives_the_right_bits_for_every_b_and_in_both_kinds_of_graph(script):
    assert "right in both kinds of graph" in script("compiled_model")
