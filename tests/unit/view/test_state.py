"""ViewState: one selection for every pane."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtlab.relation.mapping import Mapping, Pair
from rtlab.view.state import ViewState

MAPPING = Mapping(
    (Pair("conv", "A", "declared"), Pair("relu", "A", "declared"), Pair("gemm", "B", "declared"),
     Pair("gemm", "C", "declared")),
    (),
)  # fmt: skip


def test_a_selected_node_lights_up_all_its_layers() -> None:
    """A Gemm becomes two layers; both belong to it."""
    state = ViewState().select(["gemm"], MAPPING)
    assert (("gemm",), ("B", "C"), "node") == (state.selection, state.layers, state.anchor)


def test_another_variant_keeps_the_nodes_and_finds_their_new_layers() -> None:
    """Layer ids belong to one engine; nodes are what variants have in common."""
    other = Mapping((Pair("conv", "X", "declared"),), ())
    state = ViewState().select(["conv"], MAPPING).show("int8", other)
    assert (("conv",), ("X",), "int8") == (state.selection, state.layers, state.variant)


@given(st.lists(st.text()), st.sampled_from(["timing", "accuracy", "table"]), st.text())
def test_a_state_survives_the_way_to_the_browser(nodes: list[str], tab: str, variant: str) -> None:
    """What the browser sends back must be what it was given."""
    state = ViewState(selection=tuple(nodes), tab=tab, variant=variant)
    assert state == ViewState.of(state.payload())


def test_a_selection_lights_up_in_the_compared_engine_too() -> None:
    """Three panes, one selection; closing the third leaves the two others as they are."""
    other = Mapping((Pair("conv", "X", "declared"),), ())
    state = ViewState().select(["conv"], MAPPING).compare("int8", other)
    assert (("A",), ("X",), ("node", "layer", "other")) == (state.layers, state.others, state.panes)
    assert ViewState().select(["conv"], MAPPING) == state.compare("", None)


def test_arranging_changes_what_was_named_and_nothing_else() -> None:
    """A notebook sets the picture up for its reader; the selection is the reader's."""
    state = ViewState().select(["conv"], MAPPING)
    arranged = state.arrange(grouping_nodes="layers", panes=["layer", "node"], across=True)
    assert ("layers", ("layer", "node"), True) == (arranged.grouping_nodes, arranged.panes, arranged.across)
    assert (
        state.payload()
        | {
            "grouping_nodes": "layers",
            "panes": ["layer", "node"],
            "across": True,
        }
        == arranged.payload()
    )
