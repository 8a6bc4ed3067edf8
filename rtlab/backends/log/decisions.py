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

    ``known`` are the names of layers that were met so far, ``targets`` those of buffers that others were moved into,
    ``gone`` layers that a decision has taken away: the log says so again. ``rule`` is being tried on ``subject``.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.rule, self.subject = "", ""
        self.gone: set[str] = set()
        self.targets: set[str] = set()

    def running(self, text: str) -> None:
        """Remember which rule is tried on which layer. Whether it does anything, the next lines tell."""
        found = _RUNNING.match(text)
        self.rule, self.subject = (found["rule"], found["name"]) if found else ("", "")
        self.known.add(self.subject)

    def ended(self) -> None:
        """A pass is over, and with it the rule that was tried last."""
        self.rule, self.subject = "", ""

    def read(self, text: str, line: int) -> Decision | None:
        """The decision that a message tells; None where it tells none, or repeats one."""
        for rule in (_fuse, _merge, _eliminate, _retarget, _copy, _remove, _other):
            if (found := rule(self, text)) is not None:
                action, names, result, name, reason = found
                self.known.update(names, [result] if result else ())
                return Decision(action, names, result, name, reason, text, line)
        return None

    def part(self, text: str, word: str, *, last: bool = False) -> tuple[str, str] | None:
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
            left, right = pair
            return (
                2 * (left == self.subject)
                + (left in self.known)
                + (right in self.known or right in self.targets)
            )

        return max(pairs, key=fit)


_Found = tuple[Action, tuple[str, ...], str, str, str]


def _fuse(state: Decisions, text: str) -> _Found | None:
    found = _FUSE.fullmatch(text)
    if found is None:
        return None
    rule, rest = found["rule"] or "", found["rest"]
    if scaled := _SCALED.fullmatch(rest):
        # The convolution keeps its name.
        return "fuse", (scaled["first"], scaled["second"]), scaled["first"], rule, ""
    if found["verb"] == "fusing":
        into = state.part(rest, " into ", last=True)
        if into is None:
            return None
        taken, layer = into
        parts = [taken]
        if taken.startswith("(") and taken.endswith(")") and (pair := state.part(taken[1:-1], " and ")):
            parts = list(pair)
        state.gone.update(parts)
        return "fuse", (layer, *parts), layer, rule, ""
    pair = state.part(rest, " with ")
    if pair is None:
        return None
    if state.rule == rule:
        state.ended()
    result = "PWN({}, {})".format(*pair) if rule == "PointWiseFusion" else " + ".join(pair)
    return "fuse", pair, result, rule, ""


def _merge(state: Decisions, text: str) -> _Found | None:
    start = "Merging layers: "
    if not text.startswith(start):
        return None
    whole = text[len(start) :]
    names: list[str] = []
    for part in whole.split(" || "):
        # A layer that was merged before has the sign in its own name.
        if names and f"{names[-1]} || {part}" in state.known:
            names[-1] = f"{names[-1]} || {part}"
        else:
            names.append(part)
    return "merge", tuple(names), whole, "", ""


def _eliminate(state: Decisions, text: str) -> _Found | None:
    if found := _CONCAT.fullmatch(text):
        state.targets.add(found["name"])
        return "eliminate", (found["name"],), "", "concatenation", ""
    if found := _SLICE.fullmatch(text):
        pair = state.part(found["rest"], " to ", last=True)
        return "eliminate", (found["name"],), "", "slice", f"retargeted to {pair[1]}" if pair else ""
    if found := _TWIN.fullmatch(text):
        state.gone.add(found["name"])
        pair_ = (found["name"], found["other"])
        return "eliminate", pair_, found["other"], state.rule, "it duplicates the other"
    return None


def _retarget(state: Decisions, text: str) -> _Found | None:
    if not text.startswith("Retargeting ") or (pair := state.part(text[12:], " to ", last=True)) is None:
        return None
    state.targets.add(pair[1])
    return "retarget", pair, "", "", ""


def _copy(state: Decisions, text: str) -> _Found | None:
    found = _COPY.fullmatch(text)
    if found is None or (pair := state.part(found["rest"], " to ", last=True)) is None:
        return None
    state.targets.add(pair[1])
    return "copy", pair, f"{pair[0]} copy", "", (found["reason"] or "").strip()


def _remove(state: Decisions, text: str) -> _Found | None:
    if not text.startswith("Removing ") or not (name := text[9:]) or name in state.gone:
        return None
    state.gone.add(name)
    if state.rule.endswith("Fusion") and name != state.subject:
        # Such a rule says only what goes: the layer it ran on does its work from then on, under its own name.
        return "fuse", (state.subject, name), state.subject, state.rule, ""
    return "remove", (name,), "", state.rule if name == state.subject else "", ""


def _other(state: Decisions, text: str) -> _Found | None:
    if found := _TYPE.fullmatch(text):
        name, kind = found["name"], found["kind"]
        result = f"PWN({name})" if kind == "POINTWISE" else ""
        return "other", (name,), result, state.rule, f"it becomes {kind}"
    if text.startswith("Swapping ") and (pair := state.part(text[9:], " with ")):
        return "other", pair, "", state.rule, "they change places"
    if found := _REFORMAT.fullmatch(text):
        layer = _before_bracket(found["place"])
        made = f"Reformatting CopyNode for {found['side']} Tensor {found['slot']} to {layer}"
        return "other", (layer,), made, "reformat", found["change"]
    return None


def _before_bracket(text: str) -> str:
    """A name in front of the bracket that closes at the end of a text; both may hold brackets."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if not depth:
            return text[:at].rstrip()
    return text
