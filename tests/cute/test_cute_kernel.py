"""What the kernel's constants promise, by enumeration."""

from impl_cute.kernel import CANDIDATES, FIRST_SLOTS, GROUP, GROUPS, WARP, WARP_CANDIDATES, WARPS, threads
from spec.constants import MAX_TOKENS, NUM_EXPERTS, TOP_K


def test_every_candidate_has_a_slot_of_its_own():
    slots = []
    for place in range(GROUP):
        for rank in range(GROUPS):
            in_front = rank if place == 0 else 2 * rank + place
            if in_front < TOP_K:
                slots.append(FIRST_SLOTS[place] + rank)
    assert sorted(slots) == list(range(sum(CANDIDATES)))
    assert len(slots) == WARPS * WARP_CANDIDATES <= WARP


def test_a_byte_holds_every_first_slot_and_the_lowest_is_0():
    assert FIRST_SLOTS[0] == 0
    assert max(FIRST_SLOTS) < 128


def test_there_is_a_thread_for_every_expert_a_warp_for_every_pick_and_a_lane_for_every_word_and_token():
    assert threads(metadata=False) == NUM_EXPERTS == WARP * WARPS == GROUP * GROUPS
    assert threads(metadata=True) == NUM_EXPERTS + WARP
    assert WARPS == TOP_K == MAX_TOKENS
    assert GROUPS == WARP
