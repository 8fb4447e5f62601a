"""The README's result table from finished runs.

    python benchmarks/results.py runs/seed0 runs/seed1 runs/seed2

Prints one line a run and, for runs that differ in their seed alone, their mean.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from absl import app

COLUMNS = {
    "held-out": "heldout/solve_rate",
    "valid designs": "design/valid_rate",
    "designer reward": "design/reward",
    "win rate": "play/win_rate",
    "with hint": "play/win_rate_with_hint",
    "regret": "design/regret",
}


def main(arguments: Sequence[str]) -> None:
    print("| run | cycles | " + " | ".join(COLUMNS) + " | minutes |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for workdir in map(Path, arguments[1:]):
        config = json.loads((workdir / "config.json").read_text())
        summary = json.loads((workdir / "summary.json").read_text())
        print(_line(_label(config) + f", seed {config['seed']}", config, summary))
        groups[json.dumps({**config, "seed": None}, sort_keys=True)].append(summary)
    for key, summaries in groups.items():
        if len(summaries) > 1:
            names = set.intersection(*(set(summary) for summary in summaries))
            bounds = {name for name in names if name.endswith(("_low", "_high"))}
            mean = {
                name: sum(summary[name] for summary in summaries) / len(summaries) for name in names - bounds
            }
            config = json.loads(key)
            print(_line(f"{_label(config)}, mean of {len(summaries)} seeds", config, mean))


def _label(config: dict) -> str:
    trained = [role for role in ("designer", "agent") if config[role]["train"]]
    return "both roles train" if len(trained) == 2 else f"only the {trained[0]} trains" if trained else "none"


def _line(name: str, config: dict, summary: dict[str, float]) -> str:
    cells = [name, str(config["num_cycles"])]
    cells += [
        f"{_cell(summary, f'{metric}_start')} → {_cell(summary, metric)}" for metric in COLUMNS.values()
    ]
    cells.append(f"{summary['seconds/total'] / 60:.1f}")
    return "| " + " | ".join(cells) + " |"


def _cell(summary: dict[str, float], name: str) -> str:
    if name not in summary:
        return "-"
    text = f"{summary[name]:.2f}"
    if f"{name}_low" in summary:
        text += f" [{summary[f'{name}_low']:.2f}, {summary[f'{name}_high']:.2f}]"
    return text


if __name__ == "__main__":
    app.run(main)
