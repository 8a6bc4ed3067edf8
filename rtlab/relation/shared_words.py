"""Which words of their layers' names two engines share, as far as these words can be believed.

Exporters number operators through the whole graph: after a change, such as Q/DQ put in between, ``Conv_84`` is another
convolution. Names of weights and of modules stay.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from rtlab.relation.names import operator
from rtlab.relation.similarity import Signature

#: The part of the layers with one word that may do different work before all words of this sort are doubted.
_DOUBT = 0.05
#: A number that an exporter gave.
_NUMBERED = re.compile(r"_\d+$")


def find_shared_words(
    layer_words: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
    signs: tuple[Mapping[str, Signature], Mapping[str, Signature]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """The words that join the layers of both engines, by the id of the layer.

    Operators may be told by several layers of an engine; other words, such as those of weights, count where one layer
    of each has them.

    Args:
        layer_words: The words of each layer.
        signs: What each layer does.
    """
    layer_words = _number_duplicates(layer_words)
    # Most words are of one engine alone: a list for each would be searched for garbage.
    first, second = ({w for mine in side.values() for w in mine} for side in layer_words)
    one, two = (_index_words(side, first & second) for side in layer_words)
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for word in one:
        if len(one[word]) == len(two[word]) == 1 or operator(word):
            kinds[bool(_NUMBERED.search(word))].add(word)
    # What has no number is believed first, and tells which layers with one numbered word are not the same.
    believed_words: set[str] = set()
    for numbered in (False, True):
        doubt_count = judged_count = 0
        for word in kinds[numbered]:
            if len(one[word]) == len(two[word]) == 1:
                i, j = one[word][0], two[word][0]
                steady = [kinds[False].intersection(layer_words[n][k]) for n, k in ((0, i), (1, j))]
                judged_count += 1
                doubt_count += signs[0][i].contradicts(signs[1][j]) or (numbered and steady[0] != steady[1])
        if doubt_count <= _DOUBT * judged_count:
            believed_words |= kinds[numbered]
    mine, theirs = (
        {i: tuple([w for w in words if w in believed_words]) for i, words in side.items()}
        for side in layer_words
    )
    return mine, theirs


def _number_duplicates(
    layer_words: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]:
    """The same, but where each engine has a layer of one name equally often: then the first, the second, and so on."""
    often = [Counter(tuple(mine) for mine in side.values()) for side in layer_words]
    twice = {t for t, n in often[0].items() if t and n > 1 and often[1].get(t) == n}
    if not twice:
        return layer_words
    counts = Counter[tuple[int, tuple[str, ...]]]()

    def number_words(number: int, mine: Sequence[str]) -> Sequence[str]:
        if (key := tuple(mine)) not in twice:
            return mine
        counts[number, key] += 1
        return [f"{word} ({counts[number, key]})" for word in mine]

    first, second = (
        {i: number_words(n, mine) for i, mine in side.items()} for n, side in enumerate(layer_words)
    )
    return first, second


def _index_words(
    layer_words: Mapping[str, Sequence[str]], common_words: Collection[str]
) -> Mapping[str, list[str]]:
    layers_by_word: defaultdict[str, list[str]] = defaultdict(list)
    for layer, mine in layer_words.items():
        for word in mine:
            if word in common_words:
                layers_by_word[word].append(layer)
    return layers_by_word
