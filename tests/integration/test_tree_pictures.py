# SPDX-License-Identifier: Apache-2.0
"""Trees as text, HTML, pictures and Graphviz: what a reader sees."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from miners.fitted.node import Node
from miners.fitted.tree import Tree
from miners.pictures import COLOURS, shorten
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups, Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.tables.example_tree import SCHEMA, example, random_tree

mpl.use("Agg")

NASTY = [
    "<b>",
    "a & b",
    'say "hi"',
    "back\\slash \\N \\l",
    "$1$ to $2$",
    "line\nbreak\ttab",
    "]]>",
    "&lt;",
    "{x|y}",
    "日本",
    "\u2028\u0001",
    "% {",
    "'; DROP",
]


def nasty() -> Tree:
    """Every word that the schema chooses is one that some format gives a meaning of its own."""
    schema = Schema(
        columns={"<i>$x$": Categorical(values=tuple(NASTY)), 'y"\\': Categorical(values=("<u>$", "$\\v", "w\n"))},
        max_rows=9,
    )
    leaves = [Node(counts=(1.0, float(number), 0.0), counts_scale=1.0) for number in range(len(NASTY))]
    return Tree(schema, 'y"\\', [Node(Values("<i>$x$"), tuple(range(1, 1 + len(NASTY)))), *leaves])


def grouped(*sides: tuple[str, ...]) -> Tree:
    """A tree with one split by these groups."""
    schema = Schema(
        columns={
            "job": Categorical(values=tuple(value for side in sides for value in side)),
            "y": Categorical(values=("no", "yes")),
        },
        max_rows=9,
    )
    return Tree(
        schema,
        "y",
        [Node(Groups("job", sides), tuple(range(1, 1 + len(sides)))), *(Node(counts=(1.0, 2.0)) for _ in sides)],
    )


def many_classes(count: int) -> Tree:
    """A lone root with so many classes that hardly any can be seen."""
    schema = Schema(
        columns={"x": Numeric(lower=0, upper=9, integer=True), "y": Categorical(values=tuple(range(count)))}, max_rows=9
    )
    return Tree(schema, "y", [Node(counts=(1.0,) * count)])


def test_text() -> None:
    text = example().export_text()
    assert text.splitlines()[:6] == [
        "Tree for `y` (no, yes): depth 2, 5 leaves, about 101 rows, splits on sex, age, job",
        "all rows: 101 ±15 rows, no 52%; split by sex",
        "├── F: 61 ±15 rows, no 54%; split by age",
        "│   ├── < 30: no 100%  (17 ±9 rows)",
        "│   ├── 30 to < 60: yes 75%  (40 ±9 rows)",
        "│   └── >= 60: no 54%, as above  (0 ±6 rows)",
    ]
    assert text.splitlines()[-1] == "    └── c, missing: no 75%  (20 ±9 rows)"
    folded = example().export_text(max_depth=1)
    assert len(folded.splitlines()) == 4
    assert "F: no 54%  (61 ±15 rows; 3 leaves below, by age)" in folded
    with pytest.raises(QueryError, match="max_depth"):
        example().export_text(max_depth=-1)


def test_every_face_says_the_same_size() -> None:
    """One piece of code makes the interval that text, HTML, picture and Graphviz show."""
    tree = Tree(SCHEMA, "y", [Node(counts=(30.0, 20.0), counts_deviation=4.0)])
    root: Any = tree.nodes[0]
    low, high = root.interval()
    said = f"50 ±{high - 50:.0f}"
    assert (low, high) == (38.0, 62.0)
    assert said in tree.export_text()
    assert said in tree._repr_html_()
    assert said in tree.export_graphviz()
    assert said in {text.get_text() for text in tree.plot().texts}
    close()


def test_of_two_long_groups_one_is_named_and_the_other_is_the_others() -> None:
    long = tuple(f"occupation-{number}" for number in range(6))
    assert branches(grouped(("Wife", "Husband"), long)) == ["Wife, Husband", "others (6)"]
    assert branches(grouped(long, ("Wife",))) == ["others (6)", "Wife"]
    assert branches(grouped(("a", "b"), ("c", "d", "e"))) == ["a, b", "c, d, e"]
    assert branches(grouped(long[:3], long[3:])) == ["others (3)", ", ".join(long[3:])]
    assert branches(grouped(long, ("a",), ("b",))) == [", ".join(long), "a", "b"]
    html = grouped(("Wife", "Husband"), long)._repr_html_()
    assert f"title='{', '.join(long)}'>others (6)" in html  # pointing at it names them


def branches(tree: Tree) -> list[str]:
    return [line[4:].split(":")[0] for line in tree.export_text().splitlines()[2:]]


def test_long_texts_are_cut_where_it_reads_best() -> None:
    assert shorten("short", 5) == "short"
    assert shorten("Bachelors, HS-grad, Prof-school", 28) == "Bachelors, HS-grad, …"
    assert shorten("x" * 40, 28) == "x" * 27 + "…"
    assert shorten("a, " + "x" * 40, 28) == "a, " + "x" * 24 + "…"


def test_a_mix_of_more_than_two_classes_names_the_likeliest_three() -> None:
    schema = Schema(
        columns={"y": Categorical(values=("a", "b", "c", "d", "e")), "x": Categorical(values=("u", "v"))}, max_rows=9
    )
    tree = Tree(
        schema,
        "y",
        [Node(Values("x"), (1, 2)), Node(counts=(1.0, 5.0, 2.0, 2.0, 0.0)), Node(counts=(0.0, 0.0, 0.0, 0.0, 3.0))],
    )
    assert "u: b 50%, c 20%, d 20%  (10 rows)" in tree.export_text()
    assert "v: e 100%  (3 rows)" in tree.export_text()


def test_html() -> None:
    html = example()._repr_html_()
    assert "&lt; 30" in html
    assert html.count("<details") == html.count("</details>") == 3
    assert all(shade in html for shade in COLOURS[:2])
    assert (
        ET.fromstring(re.sub(r"&(?!lt;|gt;|amp;|quot;|#)\w+;", "?", html.replace("<br>", "").replace(" open>", ">")))
        is not None
    )
    for word in ("<b>", "<u>"):
        assert word not in nasty()._repr_html_().replace("<b title='", "")
    assert repr(example()) == "Tree for `y` (no, yes): depth 2, 5 leaves, about 101 rows, splits on sex, age, job"


def test_a_long_name_of_a_class_does_not_hide_its_share() -> None:
    schema = Schema(
        columns={"x": Categorical(values=("u", "v")), "y": Categorical(values=("n" * 50, "y" * 50))}, max_rows=9
    )
    tree = Tree(schema, "y", [Node(counts=(1.0, 3.0))])
    assert "y" * 50 + " 75%" in tree.export_text()
    assert "y" * 23 + "… 75%" in {text.get_text() for text in tree.plot().texts}
    assert "y" * 23 + "… 75%" in tree.export_graphviz()
    close()


def close() -> None:
    import matplotlib.pyplot as plt

    plt.close("all")


def test_plot_draws_every_visible_node() -> None:
    import matplotlib.pyplot as plt

    ax = example().plot()
    texts = {text.get_text() for text in ax.texts}
    assert {"all rows", "sex ?", "F", "age ?", "< 30", "30 to < 60", ">= 60", "no 100%", "101 ±15"} <= texts
    few = example().plot(max_depth=1)
    assert not any("30" in text.get_text() for text in few.texts)
    figure, own = plt.subplots(figsize=(3, 2))
    assert example().plot(own) is own
    for picture in (ax.figure, few.figure, figure):
        picture.canvas.draw()
    Tree(SCHEMA, "y", [Node(counts=(1.0, 2.0))]).plot().figure.canvas.draw()
    plt.close("all")


def test_a_very_wide_tree_is_drawn_to_a_depth_that_a_page_can_hold() -> None:
    import matplotlib.pyplot as plt

    nodes, last = [Node(Values("job"), (1, 2, 3, 4, 5))], 6
    below = []
    for _ in range(5):
        nodes.append(Node(Values("age"), tuple(range(last, last + 100))))
        below += [Node(counts=(1.0, 1.0))] * 100
        last += 100
    ax = Tree(SCHEMA, "y", nodes + below).plot()
    assert len(ax.texts) < 60
    assert "drawn to depth 1" in ax.texts[0].get_text()
    plt.close("all")


def test_on_an_axes_of_the_callers_no_more_is_drawn_than_can_be_read() -> None:
    """A default axes holds a few levels, in letters of four points at least; who names a depth gets it, however small."""
    import matplotlib.pyplot as plt

    nodes = []
    for depth in range(9):
        nodes += [
            Node(Cuts("age", (90 - 5 * depth,)), (2 * depth + 1, 2 * depth + 2)),
            Node(counts=(1e4, 2e4), counts_scale=9.0),
        ]
    tree = Tree(
        SCHEMA,
        "y",
        [
            nodes[0],
            *(one for pair in zip(nodes[2::2], nodes[1::2], strict=False) for one in pair),
            nodes[-1],
            nodes[-1],
        ],
    )
    _, ax = plt.subplots()
    tree.plot(ax)
    assert "drawn to depth" in ax.texts[0].get_text()
    assert min(float(text.get_fontsize()) for text in ax.texts) >= 7 * 0.6
    assert sum("age ?" in text.get_text() for text in ax.texts) >= 2
    _, ax = plt.subplots()
    tree.plot(ax, max_depth=9)
    assert sum("age ?" in text.get_text() for text in ax.texts) == 9
    plt.close("all")


@pytest.mark.parametrize("dpi", [72, 100, 150])
def test_labels_do_not_touch_their_bars(dpi: Any) -> None:
    """Letters that are fitted to a screen's pixels are wider than their outlines."""
    import matplotlib.pyplot as plt

    values = tuple(range(1, 13))
    schema = Schema(columns={"size": Categorical(values=values), "y": Categorical(values=("no", "yes"))}, max_rows=9)
    split = Groups("size", ((3, 4, 5, 6, 7, 9, 10, 11), (1, 2, 8, 12)))
    figure = Tree(schema, "y", [Node(split, (1, 2)), Node(counts=(1.0, 2.0)), Node(counts=(2.0, 1.0))]).plot().figure
    figure.set_dpi(dpi)
    canvas: Any = figure.canvas
    renderer, (ax,) = canvas.get_renderer(), figure.axes
    bars = [bar.get_window_extent(renderer) for bar in ax.patches if hasattr(bar, "get_width")]
    labels = [
        text.get_window_extent(renderer) for text in ax.texts if text.get_text() and float(text.get_fontsize()) < 12
    ]
    assert not any(label.overlaps(bar) for label in labels for bar in bars)
    plt.close("all")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pinq-miners\[plot\]"):
        example().plot()


# Graphviz


def parse_dot(source: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, str, dict[str, str]]]]:
    """Nodes and edges of a digraph by DOT's grammar, as far as it is used; HTML-like labels must be XML."""
    tokens = list(dot_tokens(source))
    assert tokens[:3] == ["digraph", "tree", "{"]
    assert tokens[-1] == "}"
    nodes: dict[str, dict[str, str]] = {}
    edges: list[tuple[str, str, dict[str, str]]] = []
    place = 3
    while place < len(tokens) - 1:
        end = tokens.index(";", place)
        statement = tokens[place:end]
        opened = statement.index("[")
        assert statement[-1] == "]"
        attributes = {}
        for name, equals, value in split_at_commas(statement[opened + 1 : -1]):
            assert equals == "="
            assert re.fullmatch(r"[a-z]+", name)
            attributes[name] = value
        match statement[:opened]:
            case [("graph" | "node" | "edge") as kind]:
                nodes[kind] = attributes
            case [name]:
                assert name not in nodes
                nodes[name] = attributes
            case [start, "->", name]:
                assert {start, name} <= set(nodes)
                edges.append((start, name, attributes))
        place = end + 1
    return nodes, edges


def split_at_commas(tokens: list[str]) -> list[list[str]]:
    statements: list[list[str]] = [[]]
    for token in tokens:
        if token == ",":
            statements.append([])
        else:
            statements[-1].append(token)
    return statements


def matched(pattern: str, text: str) -> str:
    """The beginning of a text that a pattern matches."""
    found = re.match(pattern, text, flags=re.DOTALL)
    assert found is not None
    return found[0]


def dot_tokens(source: str) -> Any:
    """DOT's tokens; a quoted or HTML-like text is one of them."""
    place = 0
    while place < len(source):
        char = source[place]
        if char.isspace():
            place += 1
            continue
        if char == "<":
            depth, end = 0, place
            while True:
                depth += {"<": 1, ">": -1}.get(source[end], 0)
                end += 1
                if depth == 0:
                    break
            ET.fromstring(f"<x>{source[place + 1 : end - 1].replace('&nbsp;', ' ')}</x>")
        elif char == '"':
            end = place + len(matched(r'"(\\.|[^"\\])*"', source[place:]))
        elif source.startswith("->", place):
            end = place + 2
        elif char in "{}[]=;,":
            end = place + 1
        else:
            end = place + len(matched(r"[A-Za-z_][A-Za-z_0-9]*|-?[0-9.]+", source[place:]))
        yield source[place:end]
        place = end


def drawn(source: str) -> ET.Element:
    """The picture that Graphviz makes of it; no word of complaint is allowed."""
    if shutil.which("dot") is None:
        pytest.skip(
            "Graphviz's `dot` is not installed (Debian: apt-get install graphviz), so nobody but our own parser reads the DOT text"
        )
    done = subprocess.run(["dot", "-Tsvg"], input=source.encode(), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return ET.fromstring(done.stdout)


def words(svg: ET.Element) -> set[str]:
    return {" ".join("".join(one.itertext()).split()) for one in svg.iter("{http://www.w3.org/2000/svg}text")}


def test_graphviz_has_a_node_for_each_node_and_an_edge_for_each_branch() -> None:
    tree = example()
    nodes, edges = parse_dot(tree.export_graphviz())
    assert set(nodes) == {"graph", "node", "edge", *(f"n{place}" for place in range(8))}
    assert [(start, end) for start, end, _ in edges] == [
        ("n0", "n1"),
        ("n1", "n3"),
        ("n1", "n4"),
        ("n1", "n5"),
        ("n0", "n2"),
        ("n2", "n6"),
        ("n2", "n7"),
    ]
    assert "sex ?" in nodes["n0"]["label"]
    assert "101 ±15 rows" in nodes["n0"]["label"]
    assert "yes 75%" in nodes["n4"]["label"]
    assert "&lt; 30" in nodes["n3"]["label"]
    assert edges[6][2]["tooltip"] == '"c, missing"'
    assert all(shade in nodes["graph"]["label"] for shade in COLOURS[:2])  # the legend
    # The bar's cells are as wide as the shares, together as wide as in every other node.
    assert re.findall(r'WIDTH="(\d+)" HEIGHT="9" BGCOLOR="(#\w+)"', nodes["n4"]["label"]) == [
        ("24", COLOURS[0]),
        ("72", COLOURS[1]),
    ]
    few, _ = parse_dot(tree.export_graphviz(max_depth=1))
    assert set(few) == {"graph", "node", "edge", "n0", "n1", "n2"}
    assert "3 leaves" in few["n1"]["label"]


@pytest.mark.parametrize(
    "make",
    [
        example,
        nasty,
        lambda: many_classes(2),
        lambda: many_classes(40),
        lambda: many_classes(500),
        lambda: random_tree(5)[0],
    ],
)
def test_graphviz_text_is_well_formed(make: Any) -> None:
    tree = make()
    nodes, edges = parse_dot(tree.export_graphviz())
    assert (len(nodes), len(edges)) == (tree.n_nodes + 3, tree.n_nodes - 1)
    for number in range(tree.n_nodes):
        assert (
            sum(int(wide) for wide in re.findall(r'<TD FIXEDSIZE="TRUE" WIDTH="(\d+)"', nodes[f"n{number}"]["label"]))
            == 96
        )


def test_graphviz_draws_it() -> None:
    svg = drawn(example().export_graphviz())
    assert {"sex ?", "101 ±15 rows", "yes 75%", "F", "< 30", "c, missing", "y: depth 2, 5 leaves"} <= words(svg)
    drawn(many_classes(500).export_graphviz())


def test_graphviz_draws_words_that_mean_something_to_it_as_they_are() -> None:
    tree = nasty()
    svg = drawn(tree.export_graphviz())
    expected = {" ".join(re.sub(r"[\n\t\u2028\u0001]", "\N{REPLACEMENT CHARACTER}", value).split()) for value in NASTY}
    assert expected <= words(svg)
    tips = {title for one in svg.iter() if (title := one.get("{http://www.w3.org/1999/xlink}title")) is not None}
    assert {'say "hi"', "a & b", "&lt;", "back\\slash \\N \\l"} <= tips


def drawn_by_matplotlib(tree: Tree) -> Any:
    ax = tree.plot()
    ax.figure.canvas.draw()
    return ax


def test_pictures_of_words_that_mean_something_to_matplotlib() -> None:
    """Dollars do not begin a formula."""
    with pytest.warns(UserWarning, match="Glyph"):  # the Japanese word is not in matplotlib's own font
        ax = drawn_by_matplotlib(nasty())
    assert {"$1$ to $2$", "back\\slash \\N \\l"} <= {text.get_text() for text in ax.texts}
    close()


@pytest.mark.parametrize("seed", range(3))
def test_no_two_texts_of_a_picture_overlap(seed: Any) -> None:
    """Nothing is written over anything else, however the tree grew."""
    random = np.random.default_rng(seed)
    nodes, last = [Node()], 1
    splits: list[Values | Cuts | Groups] = [
        Values("sex"),
        Cuts("age", (35,)),
        Groups("job", (("a",), ("b", "c", "d", None))),
        Values("job"),
    ]
    for place in range(25):
        if place < len(nodes) and random.random() < 0.7:
            split = splits[random.integers(4)]
            size = 5 if split == splits[3] else 2
            nodes[place] = Node(split, tuple(range(last, last + size)))
            nodes += [Node()] * size
            last += size
    leaves = [
        node
        if node.split
        else Node(counts=tuple(random.integers(0, 10**6, 2).astype(float).tolist()), counts_scale=50.0)
        for node in nodes
    ]
    ax = Tree(SCHEMA, "y", leaves).plot()
    canvas: Any = ax.figure.canvas
    renderer = canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in ax.texts]
    page = ax.figure.bbox
    for number, box in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        for other, that in enumerate(boxes[:number]):
            over = min(box.x1, that.x1) - max(box.x0, that.x0), min(box.y1, that.y1) - max(box.y0, that.y0)
            assert min(over) <= 1.0, (ax.texts[number].get_text(), ax.texts[other].get_text())
    close()
