# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/verbs.md, from made-up people: ``python docs/pictures/specs.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).parent
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")
DRAWN = np.random.default_rng(60)
AGE = DRAWN.integers(18, 80, 60)
SEX = DRAWN.integers(0, 2, 60)
HEIGHT = SEX + DRAWN.uniform(0.15, 0.85, 60)


def people(axes: Axes, part: np.ndarray, labels: Sequence[str]) -> None:
    """Draws everybody in the colour of their part; -1 is in none."""
    axes.scatter(AGE[part < 0], HEIGHT[part < 0], s=14, facecolors="none", edgecolors="#999999")
    for number, label in enumerate(labels):
        inside = part == number
        axes.scatter(AGE[inside], HEIGHT[inside], s=16, color=COLOURS[number], label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    axes.set(yticks=(0.5, 1.5), yticklabels=("women", "men"), ylim=(0, 2), xlim=(15, 82), xlabel="age")


def by_sex(axes: Axes) -> None:
    """Values("sex")."""
    people(axes, SEX, ("sex = Female", "sex = Male"))
    axes.axhline(1, color="black", lw=1)


def by_age(axes: Axes) -> None:
    """Cuts("age", [30, 45])."""
    people(axes, np.digitize(AGE, (30, 45)), ("age < 30", "30 to < 45", "age >= 45"))
    for cut in (30, 45):
        axes.axvline(cut - 0.5, color="black", lw=1)


def by_both(axes: Axes) -> None:
    """Six parts of two specs."""
    names = [f"{sex}, {age}" for sex in ("Female", "Male") for age in ("< 30", "30 to < 45", ">= 45")]
    people(axes, 3 * SEX + np.digitize(AGE, (30, 45)), names)
    axes.axhline(1, color="black", lw=1)
    for cut in (30, 45):
        axes.axvline(cut - 0.5, color="black", lw=1)


def by_shard(axes: Axes) -> None:
    """Three shards."""
    people(axes, np.random.default_rng(3).integers(0, 3, 60), ("shard 0", "shard 1", "shard 2"))


def parts_of_words(names: Sequence[str], part: Sequence[int], labels: Sequence[str]) -> Callable[[Axes], None]:
    """A picture of values in boxes, coloured by their part; -1 is in none."""

    def draw(axes: Axes) -> None:
        axes.axis("off")
        axes.set(xlim=(0, len(names)), ylim=(0, 1.6))
        for place, (name, number) in enumerate(zip(names, part, strict=True)):
            colour = "#dddddd" if number < 0 else COLOURS[number % len(COLOURS)]
            axes.add_patch(plt.Rectangle((place + 0.05, 0.3), 0.9, 0.6, color=colour))
            axes.text(place + 0.5, 0.6, name, ha="center", va="center", fontsize=8)
            text = "no part" if number < 0 else labels[number]
            axes.text(place + 0.5, 1.15, text, ha="center", va="center", fontsize=8, color="#444444")

    return draw


def noise_around(truth: float, scale: float, label: str, grid: np.ndarray) -> Callable[[Axes], None]:
    """A picture of how likely each answer is."""

    def draw(axes: Axes) -> None:
        axes.bar(grid, np.exp(-np.abs(grid - truth) / scale), width=0.8 * (grid[1] - grid[0]), color=COLOURS[0])
        axes.axvline(truth, color="black", lw=1)
        axes.text(truth, 1.04, " the true one", ha="left", fontsize=8)
        axes.set(yticks=(), ylim=(0, 1.18), xlabel=label, ylabel="how likely")

    return draw


def summed(axes: Axes) -> None:
    """Values clamped to 0 to 60, which is what a sum adds up."""
    values = np.array([12, 25, 38, 55, 60, 78, 95])
    axes.bar(range(7), values, color="#dddddd", label="left out: above the bound")
    axes.bar(range(7), np.minimum(values, 60), color=COLOURS[0], label="added up")
    axes.axhline(60, color="black", lw=1)
    axes.set(xticks=(), xlabel="people", ylabel="hours, declared 0 to 60")
    axes.legend(loc="upper left", frameon=False, fontsize=8)


def chosen(axes: Axes) -> None:
    """Chances of four candidates at three epsilons."""
    scores = np.array([0, 10, 14, 20])
    for number, epsilon in enumerate((0.05, 0.2, 1)):
        weights = np.exp(epsilon * (scores - scores.max()))
        places = np.arange(4) + 0.27 * (number - 1)
        axes.bar(places, weights / weights.sum(), 0.25, color=COLOURS[number], label=f"ε = {epsilon}")
    axes.set(xticks=range(4), xticklabels=[f"score {score}" for score in scores], ylabel="chance", ylim=(0, 1.05))
    axes.legend(loc="upper left", frameon=False, fontsize=8)


def any_cut(axes: Axes) -> None:
    """How well each cut of age halves the people: the score of AnyCut with Balance."""
    cuts = np.arange(18, 81)
    balance = np.array([-abs(2 * int((cut > AGE).sum()) - len(AGE)) for cut in cuts])
    axes.step(cuts, balance, color=COLOURS[0])
    best = cuts[int(np.argmax(balance))]
    axes.axvline(best, color="black", lw=1)
    axes.text(best + 1, balance.min(), "the likeliest choice", fontsize=8)
    axes.set(xlabel="cut of age", ylabel="score: Balance()")


def any_cross(axes: Axes) -> None:
    """Pairs of three specs, each a candidate."""
    axes.axis("off")
    axes.set(xlim=(0, 3), ylim=(0, 1.8))
    for place, (across, down) in enumerate(
        (((2, "sex"), (3, "race")), ((2, "sex"), (4, "age")), ((3, "race"), (4, "age")))
    ):
        for column in range(across[0]):
            for row in range(down[0]):
                box = (place + 0.15 + 0.7 * column / across[0], 0.15 + 1.1 * row / down[0])
                axes.add_patch(plt.Rectangle(box, 0.66 / across[0], 1.02 / down[0], color=COLOURS[place]))
        axes.text(place + 0.5, 1.5, f"{across[1]} x {down[1]}", ha="center", fontsize=9)


PICTURES: dict[str, Callable[[Axes], None]] = {
    "noisy-count": noise_around(60, 5, "answer, at epsilon 0.2", np.arange(40, 81)),
    "noisy-sum": summed,
    "noisy-avg": noise_around(42, 1.1, "answer: average age of 60 people, at epsilon 1", np.linspace(36, 48, 49)),
    "partition": by_both,
    "exp-mech": chosen,
    "values": by_sex,
    "cuts": by_age,
    "groups": parts_of_words(("White", "Black", "Other", "Eskimo"), (0, 1, 1, -1), ("part 0", "part 1")),
    "calendar": parts_of_words(
        ("1959", "1960", "1961", "1962"), (0, 1, 2, 3), ("1959-..", "1960-..", "1961-..", "1962-..")
    ),
    "shards": by_shard,
    "cross": by_both,
    "any-cut": any_cut,
    "any-grouping": parts_of_words(
        ("Wife", "Husband", "Own-child", "Unmarried"), (0, 0, 1, 1), ("this side", "that side")
    ),
    "any-cross": any_cross,
}


def main() -> None:
    """Writes every picture beside this file."""
    mpl.rcParams.update(
        {
            "svg.hashsalt": "pinq",
            "svg.fonttype": "none",
            "font.size": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    for name, draw in PICTURES.items():
        figure, axes = plt.subplots(figsize=(5.2, 1.9))
        draw(axes)
        figure.savefig(FOLDER / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
