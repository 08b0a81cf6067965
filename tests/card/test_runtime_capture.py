"""CUDA graphs: capture right after prepare, and capture before it, each in a fresh process."""

import pytest

pytestmark = pytest.mark.card


def test_the_very_first_route_after_prepare_is_captured_and_replays_with_new_logits(script):
    assert "replayed 20" in script("capture_first")


def test_a_capture_before_prepare_raises_enqueues_nothing_and_the_process_goes_on(script):
    assert "refused 5" in script("capture_unprepared")


def test_after_prepare_nothing_compiles_loads_allocates_or_waits_whatever_the_arguments(script):
    assert "launches 2304" in script("driver_calls")
