"""ViewState: one selection for every pane."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtlab.relation.mapping import Mapping, Pair
from rtlab.web.page.state import ViewState, parse_steps

MAPPING = Mapping(
    (Pair("conv", "A", "declared"), Pair("relu", "A", "declared"), Pair("gemm", "B", "declared"),
     Pair("gemm", "C", "declared")),
    (),
)  # fmt: skip


def test_a_selected_node_lights_up_all_its_layers() -> None:
    state = ViewState().select(["gemm"], MAPPING)
    assert (("gemm",), ("B", "C"), "node") == (state.selection, state.layers, state.anchor)


def test_another_variant_keeps_the_nodes_and_finds_their_new_layers() -> None:
    other = Mapping((Pair("conv", "X", "declared"),), ())
    state = ViewState().select(["conv"], MAPPING).show("int8", other)
    assert (("conv",), ("X",), "int8") == (state.selection, state.layers, state.variant)


@given(st.lists(st.text()), st.sampled_from(["timing", "accuracy", "table"]), st.text())
def test_a_state_survives_the_way_to_the_browser(nodes: list[str], tab: str, variant: str) -> None:
    state = ViewState(selection=tuple(nodes), tab=tab, variant=variant)
    assert state == ViewState.from_payload(state.payload())


def test_a_selection_lights_up_in_the_compared_engine_too() -> None:
    other = Mapping((Pair("conv", "X", "declared"),), ())
    state = ViewState().select(["conv"], MAPPING).compare("int8", other)
    assert (("A",), ("X",), ("node", "layer", "other")) == (state.layers, state.others, state.panes)
    assert ViewState().select(["conv"], MAPPING) == state.compare("", None)


def test_a_step_of_a_cell_is_complete_and_plain() -> None:
    view = {"selection": ("a", "b"), "settings": {"memory.batch": "4"}}
    (made,) = once = parse_steps([{"words": "Look", "view": view}])
    assert {"words": "Look", "view": {**view, "selection": ["a", "b"]}, "places": {}} == made
    assert once == parse_steps(once)
    assert ("a", "b") == ViewState.from_payload(made["view"]).selection
