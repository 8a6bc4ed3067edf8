"""What a pass of the builder decides, out of the sentence in which its verbose log says so.

Names of layers and tensors hold any text, also the words between which they stand. Where a sentence can be parted in
more than one way, the way wins whose parts are names that the log used before.
"""

from __future__ import annotations

import re

from rtlab.core.buildlog import Action, Decision

_FUSE = re.compile(r"(?:(?P<rule>\w+): )?(?P<verb>[Ff]using) (?P<rest>.+)", re.DOTALL)
_SCALED = re.compile(r"convolution weights from (?P<first>.+) with scale (?P<second>.+)", re.DOTALL)
_CONCAT = re.compile(r"Eliminating con(?:c|t)atenation (?P<name>.+)", re.DOTALL)
_SLICE = re.compile(r"Eliminating slice (?P<name>.+?) by retargeting (?P<rest>.+)", re.DOTALL)
_TWIN = re.compile(r"Eliminating (?P<name>.+) which duplicates (?:\(\w+\) )?(?P<other>.+)", re.DOTALL)
_COPY = re.compile(r"Generating copy for (?P<rest>.+?)(?: because (?:of )?(?P<reason>[^.]*)\.?)?$", re.DOTALL)
_TYPE = re.compile(r"(?:Swap the|Convert) layer type of (?P<name>.+) from \w+ to (?P<kind>\w+)", re.DOTALL)
_REFORMAT = re.compile(
    r"Adding reformat layer: Reformatted (?P<side>Input|Output) Tensor (?P<slot>\d+) to (?P<place>.+ \(.+\)) from "
    r"(?P<change>\S.* to \S.*)",
    re.DOTALL,
)
_RUNNING = re.compile(r"Running: (?P<rule>\w+) on (?P<name>.+)", re.DOTALL)


class Decisions:
    """Reads the sentences of one network in order.

    ``layer_names`` are the names of layers that were met so far, ``targets`` those of buffers that others were moved
    into, ``removed_layers`` layers that a decision has taken away: the log says so again. ``rule`` is being tried on
    ``subject``.
    """

    def __init__(self) -> None:
        self.layer_names: set[str] = set()
        self.rule, self.subject = "", ""
        self.removed_layers: set[str] = set()
        self.targets: set[str] = set()

    def begin_rule(self, text: str) -> None:
        """Remember which rule is tried on which layer. Whether it does anything, the next lines tell."""
        match = _RUNNING.match(text)
        self.rule, self.subject = (match["rule"], match["name"]) if match else ("", "")
        self.layer_names.add(self.subject)

    def end_rule(self) -> None:
        """A pass is over, and with it the rule that was tried last."""
        self.rule, self.subject = "", ""

    def read(self, text: str, line: int) -> Decision | None:
        """The decision that a message tells; None where it tells none, or repeats one."""
        for rule in _RULES:
            if (fields := rule(self, text)) is not None:
                action, names, result, name, reason = fields
                self.layer_names.update(names, [result] if result else ())
                return Decision(action, names, result, name, reason, text, line)
        return None

    def split_names(self, text: str, word: str, *, last: bool = False) -> tuple[str, str] | None:
        """The two names around ``word``; None where it is missing."""
        places = [m.start() for m in re.finditer(re.escape(word), text)]
        # A sentence holds few such words; without a bound a damaged one could take long.
        pairs = [(text[:p], text[p + len(word) :]) for p in places[:50]]
        pairs = [(a, b) for a, b in pairs if a.strip() and b.strip()]
        if not pairs:
            return None
        if last:
            pairs.reverse()

        def fit(pair: tuple[str, str]) -> int:
            first, second = pair
            is_second_met = second in self.layer_names or second in self.targets
            return 2 * (first == self.subject) + (first in self.layer_names) + is_second_met

        return max(pairs, key=fit)


_DecisionFields = tuple[Action, tuple[str, ...], str, str, str]


def _read_fusion(state: Decisions, text: str) -> _DecisionFields | None:
    match = _FUSE.fullmatch(text)
    if match is None:
        return None
    rule, rest = match["rule"] or "", match["rest"]
    if scale_match := _SCALED.fullmatch(rest):
        # The convolution keeps its name.
        return "fuse", (scale_match["first"], scale_match["second"]), scale_match["first"], rule, ""
    if match["verb"] == "fusing":
        into = state.split_names(rest, " into ", last=True)
        if into is None:
            return None
        names, layer = into
        pair = state.split_names(names[1:-1], " and ") if names[0] + names[-1] == "()" else None
        parts = pair or (names,)
        state.removed_layers.update(parts)
        return "fuse", (layer, *parts), layer, rule, ""
    pair = state.split_names(rest, " with ")
    if pair is None:
        return None
    if state.rule == rule:
        state.end_rule()
    result = "PWN({}, {})".format(*pair) if rule == "PointWiseFusion" else " + ".join(pair)
    return "fuse", pair, result, rule, ""


def _read_merge(state: Decisions, text: str) -> _DecisionFields | None:
    start = "Merging layers: "
    if not text.startswith(start):
        return None
    merged_name = text[len(start) :]
    names: list[str] = []
    for part in merged_name.split(" || "):
        # A layer that was merged before has the sign in its own name.
        if names and f"{names[-1]} || {part}" in state.layer_names:
            names[-1] = f"{names[-1]} || {part}"
        else:
            names.append(part)
    return "merge", tuple(names), merged_name, "", ""


def _read_elimination(state: Decisions, text: str) -> _DecisionFields | None:
    if match := _CONCAT.fullmatch(text):
        state.targets.add(match["name"])
        return "eliminate", (match["name"],), "", "concatenation", ""
    if match := _SLICE.fullmatch(text):
        pair = state.split_names(match["rest"], " to ", last=True)
        return "eliminate", (match["name"],), "", "slice", f"retargeted to {pair[1]}" if pair else ""
    if match := _TWIN.fullmatch(text):
        state.removed_layers.add(match["name"])
        pair_ = (match["name"], match["other"])
        return "eliminate", pair_, match["other"], state.rule, "it duplicates the other"
    return None


def _read_retarget(state: Decisions, text: str) -> _DecisionFields | None:
    pair = state.split_names(text[12:], " to ", last=True) if text.startswith("Retargeting ") else None
    if pair is None:
        return None
    state.targets.add(pair[1])
    return "retarget", pair, "", "", ""


def _read_copy(state: Decisions, text: str) -> _DecisionFields | None:
    match = _COPY.fullmatch(text)
    if match is None or (pair := state.split_names(match["rest"], " to ", last=True)) is None:
        return None
    state.targets.add(pair[1])
    return "copy", pair, f"{pair[0]} copy", "", (match["reason"] or "").strip()


def _read_removal(state: Decisions, text: str) -> _DecisionFields | None:
    if not text.startswith("Removing ") or not (name := text[9:]) or name in state.removed_layers:
        return None
    state.removed_layers.add(name)
    if state.rule.endswith("Fusion") and name != state.subject:
        # Such a rule says only what goes: the layer it ran on does its work from then on, under its own name.
        return "fuse", (state.subject, name), state.subject, state.rule, ""
    return "remove", (name,), "", state.rule if name == state.subject else "", ""


def _read_other(state: Decisions, text: str) -> _DecisionFields | None:
    if match := _TYPE.fullmatch(text):
        name, kind = match["name"], match["kind"]
        result = f"PWN({name})" if kind == "POINTWISE" else ""
        return "other", (name,), result, state.rule, f"it becomes {kind}"
    if text.startswith("Swapping ") and (pair := state.split_names(text[9:], " with ")):
        return "other", pair, "", state.rule, "they change places"
    if match := _REFORMAT.fullmatch(text):
        layer = _strip_bracket(match["place"])
        copy_name = f"Reformatting CopyNode for {match['side']} Tensor {match['slot']} to {layer}"
        return "other", (layer,), copy_name, "reformat", match["change"]
    return None


def _strip_bracket(text: str) -> str:
    """A name in front of the bracket that closes at the end of a text; both may hold brackets."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if not depth:
            return text[:at].rstrip()
    return text


_RULES = _read_fusion, _read_merge, _read_elimination, _read_retarget, _read_copy, _read_removal, _read_other
