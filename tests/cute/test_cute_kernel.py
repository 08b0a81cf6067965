"""What the kernel's constants promise, by enumeration."""

from itertools import product

from impl_cute.kernel import RECIPROCAL_BITS, SORT_NETWORK, THREADS
from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS


def test_the_network_sorts_eight_keys():
    # The 0-1 principle: a network that sorts every sequence of zeros and ones sorts every sequence.
    for keys in product((0, 1), repeat=8):
        wires = list(keys)
        for low, high in SORT_NETWORK:
            wires[low], wires[high] = max(wires[low], wires[high]), min(wires[low], wires[high])
        assert wires == sorted(keys, reverse=True)


def test_the_reciprocal_of_m1_divides_exactly():
    for tile in range(1, MAX_TILE + 1):
        reciprocal = (1 << RECIPROCAL_BITS) // tile + 1
        for hits in range(MAX_TOKENS + 1):
            numerator = hits + tile - 1
            assert numerator * reciprocal < 1 << 32
            assert numerator * reciprocal >> RECIPROCAL_BITS == -(-hits // tile)


def test_there_is_a_thread_for_every_expert_and_a_warp_for_every_token():
    assert THREADS == NUM_EXPERTS == 32 * MAX_TOKENS
