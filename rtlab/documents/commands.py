"""Commands of the page to the kernel: objects with a ``type``; ``widgets/src/core/contract.ts`` has their union."""

from __future__ import annotations

import collections.abc
import typing
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict

import msgspec

from rtlab.errors import RtlabError, wrap_error

WorkName = Literal[
    "sweep",
    "tune",
    "rebuild",
    "peaks",
    "why",
    "advise",
    "remedy",
    "sensitivity",
    "only",
    "diagnose",
    "channels",
    "treat",
    "repair",
    "bisect",
]
#: What each kind of work does, in a sentence.
WORKS: collections.abc.Mapping[WorkName, str] = {
    "sweep": "Builds and times the model at each of these batch sizes.",
    "tune": "Times every way to compute this, and keeps the fastest.",
    "rebuild": "Builds the variant again with this change, as a variant beside it.",
    "peaks": "Times products and copies here, to know what this processor can do at most.",
    "why": "Builds parts of the model with one thing changed, until the compiler shows what keeps the two apart.",
    "advise": "Asks about all missed fusions, and tries what could mend them on the whole model.",
    "remedy": "Builds the variant with this change, beside the one on screen.",
    "sensitivity": "Runs the model with one node rounded, or one left out, for each of them.",
    "only": "Errors and scores are computed again, of these samples alone.",
    "diagnose": "Looks for what the accuracy was lost to: clipping, outliers, a few nodes, the data.",
    "channels": "Runs samples and takes the error of each channel of this value.",
    "treat": "Builds the variant with this transform, beside the one on screen.",
    "repair": "Tries scales, then a higher precision for few nodes, until the score is back.",
    "bisect": "Both compilers build smaller and smaller parts of the model, as long as they differ.",
}


class Pin(TypedDict):
    """Nodes that have a precision of their own: those whose id or name fits the pattern, or ``op:`` and an operator."""

    pattern: str
    precision: str


class Choice(TypedDict):
    """Choices of the top row as ``Study.add`` takes them; ``calibrator`` is empty where the precision needs none."""

    model: str
    precision: str
    calibrator: str
    target: str
    backend: str
    pins: list[Pin]
    weights: str
    sparsity: list[str]
    treatments: list[str]
    sizes: list[str]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What crosses between page and kernel and no trait keeps; ``type`` says which it is."""

    def to_dict(self) -> dict[str, Any]:
        """The message as it crosses."""
        return {"type": self.__struct_config__.tag, **msgspec.structs.asdict(self)}


class PageCommand(Message, frozen=True):
    """What the page asks for. ``action`` is what it tries, continuing "Cannot"."""

    action: ClassVar[str]


class FetchParcel(PageCommand, frozen=True, tag="fetch"):
    """Send what is delivered: a trait or a part of the page's code, by its name."""

    action = "send what the page asks for"
    name: str


class FetchPlotly(PageCommand, frozen=True, tag="plotly"):
    """Send the library that draws charts."""

    action = "send the charts"


class BuildChoice(PageCommand, frozen=True, tag="build"):
    """Build what was chosen when the button was pressed."""

    action = "build the variant"
    choice: Choice


class BuildAgain(PageCommand, frozen=True, tag="rebuild"):
    """Build a variant anew."""

    action = "build the variant again"
    variant: str


class MeasureMore(PageCommand, frozen=True, tag="measure"):
    """Go on measuring a variant where it stopped."""

    action = "measure the variant"
    variant: str


class CancelWork(PageCommand, frozen=True, tag="cancel"):
    """Stop the work that runs."""

    action = "cancel the work"


class ShowVariant(PageCommand, frozen=True, tag="show"):
    """Show a variant that is built."""

    action = "show the variant"
    variant: str


class CompareVariant(PageCommand, frozen=True, tag="compare"):
    """Show a variant in the third pane; an empty name closes it."""

    action = "show a second engine"
    variant: str


class SetBaseline(PageCommand, frozen=True, tag="baseline"):
    """Tell scores against this variant."""

    action = "compare with this variant"
    variant: str


class RemoveVariant(PageCommand, frozen=True, tag="remove"):
    """Take a variant out of the study."""

    action = "remove the variant"
    variant: str


class OpenNamed(PageCommand, frozen=True, tag="open"):
    """Open a model by its name or path, or take samples from a path."""

    action = "open the file"
    path: str


class NameSizes(PageCommand, frozen=True, tag="sizes"):
    """Give open sizes these numbers, by symbol or by an input and its dimension, and build what is chosen."""

    action = "take these sizes"
    sizes: dict[str, int]


class ReadDropped(PageCommand, frozen=True, tag="drop"):
    """Read files that come along: their names, and as many buffers."""

    action = "read what was dropped"
    names: list[str]


class OpenNetron(PageCommand, frozen=True, tag="netron"):
    """Show the model in Netron."""

    action = "open Netron"


class InspectNode(PageCommand, frozen=True, tag="inspect"):
    """Find out the distribution of a node's weights and outputs."""

    action = "look into the node"
    node: str


class ExtractNodes(PageCommand, frozen=True, tag="extract"):
    """Send nodes as a model of their own."""

    action = "save the selected nodes"
    nodes: list[str]


class CutModel(PageCommand, frozen=True, tag="cut"):
    """Open the part of the model that some values follow from, and build it."""

    action = "cut the model"
    until: list[str]


class ObserveRanges(PageCommand, frozen=True, tag="observe"):
    """Gather the activations' ranges."""

    action = "calibrate"


class RankCalibrators(PageCommand, frozen=True, tag="rank"):
    """Try every calibrator on the task."""

    action = "rank the calibrators"


class RepairPlacement(PageCommand, frozen=True, tag="repair"):
    """Apply the findings with these ids, all that can be where there is none."""

    action = "repair the model"
    findings: list[str]


class SaveFile(PageCommand, frozen=True, tag="save"):
    """Send the prepared model of a built variant."""

    action = "save the file"
    variant: str


class SaveStudy(PageCommand, frozen=True, tag="keep"):
    """Save the study as a file in the kernel's folder."""

    action = "save the study"


class AskPanel(PageCommand, frozen=True, tag="panel"):
    """Answer a panel of a variant with these of its settings; ``id`` names the question among those of all pages."""

    action = "answer the panel"
    id: str
    # A page that knows more panels asks for nothing that could fail.
    panel: str
    variant: str
    settings: dict[str, str]


class StartWork(PageCommand, frozen=True, tag="work"):
    """Do the work behind a button of a panel, with what goes with it."""

    action = "do the panel's work"
    work: WorkName
    variant: str
    values: dict[str, str]


class DismissFailure(PageCommand, frozen=True, tag="dismiss"):
    """Take the error card away."""

    action = "close the card"


Command: TypeAlias = (
    FetchParcel | FetchPlotly | BuildChoice | BuildAgain | MeasureMore | CancelWork | ShowVariant | CompareVariant
    | SetBaseline | RemoveVariant | OpenNamed | NameSizes | ReadDropped | OpenNetron | InspectNode | ExtractNodes
    | CutModel | SaveStudy
    | ObserveRanges | RankCalibrators | RepairPlacement | SaveFile | AskPanel | StartWork | DismissFailure
)  # fmt: skip
_BY_NAME: collections.abc.Mapping[str, Any] = {
    kind.__struct_config__.tag: kind for kind in typing.get_args(Command)
}


def read(message: object) -> Command | None:
    """The command that a page has sent; None for one that a newer page knows and this kernel does not.

    Raises:
        RtlabError: a field is missing, unknown or of another type.
    """
    name = message.get("type") if isinstance(message, collections.abc.Mapping) else None
    kind = _BY_NAME.get(str(name))
    if kind is None:
        return None
    try:
        command: Command = msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise RtlabError(
            f"Cannot {kind.action}: the page sent what this kernel cannot read. They may be of two versions of "
            "rtlab: restart the kernel, reload the page, and run the cell again.",
            details=wrap_error(error, kind.action).details,
        ) from error
    return command
