"""What grounding does to the designer: distinct environments with documents and without.

    python benchmarks/grounding.py --config=configs/tiny_games.py --workdir=runs/quickstart

Asks the policy of a run (its newest checkpoint; without --workdir, the warm start) for designs twice,
once with a document in each prompt and once without, everything else equal, and counts the valid and
the distinct ones: programs that differ, and programs that differ beyond layout and names in strings.
With documents, also how many programs name a subject of their own document (a noun of the built-in
scenes, or a word that sets documents of another corpus apart), against one of another prompt's document
as the chance level.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from spade_jax import config as config_module
from spade_jax.cycle import Machinery, draw_contexts
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.grounding.excerpt import excerpt, named_in
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.rollout.propose import propose
from spade_jax.self_play import SelfPlayState
from spade_jax.train import build, restore, start
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.types import Design
from spade_jax.warm_start.grounds import Grounds
from spade_jax.warm_start.pretrain import grounds_for

_CONFIG = flags.DEFINE_string("config", "configs/tiny_games.py", "A file with get_config().")
_WORKDIR = flags.DEFINE_string("workdir", "", "A run's folder; without one, the warm start is asked.")
_NUM_DESIGNS = flags.DEFINE_integer("num_designs", 384, "Designs in each condition.", lower_bound=1)
_SET = flags.DEFINE_multi_string("set", [], "section.field=value")


def main(_: Sequence[str]) -> None:
    config = config_module.with_overrides(config_module.load(_CONFIG.value), _SET.value)
    grounds, designs = asyncio.run(_ask(config, _WORKDIR.value))
    print(f"{'':24}{'valid':>8}{'distinct programs':>20}{'distinct games':>17}")
    for name, group in designs.items():
        valid = [design for design in group if design.source is not None]
        programs = {design.source.code for design in valid}
        games = {fingerprint(code) for code in programs}
        print(f"{name:24}{len(valid):>8}{len(programs):>20}{len(games):>17}")
    own, other = _named(designs["with documents"], grounds)
    print(
        f"programs that name a subject of their document: {own:.0%}; "
        f"of the next prompt's document: {other:.0%}"
    )


async def _ask(config: config_module.Config, workdir: str) -> tuple[Grounds, dict[str, list[Design]]]:
    async with contextlib.AsyncExitStack() as stack:
        sandbox, mesh = await start(config, stack)
        machinery, params = await build(config, stack, sandbox=sandbox, mesh=mesh, track=iter)
        if workdir:
            checkpoints = Path(workdir) / "checkpoints"
            checkpointer = stack.enter_context(Checkpointer(checkpoints, keep=config.checkpoint.keep))
            state, _ = restore(machinery, checkpointer)
            params = state.params
        machinery.engine.load_weights(params, version=0)
        return grounds_for(config, machinery.corpus), {
            "with documents": await _designs(machinery),
            "without": await _designs(dataclasses.replace(machinery, corpus=None)),
        }


async def _designs(machinery: Machinery) -> list[Design]:
    empty = EnvironmentMemory(records=(), capacity=1)
    designs: list[Design] = []
    cycle = 0
    while len(designs) < _NUM_DESIGNS.value:
        state = SelfPlayState(cycle=cycle, memory=empty, corpus=None)
        contexts = draw_contexts(machinery, state, range(machinery.config.designer.environments))
        designs += await propose(contexts, machinery.studio(empty))
        cycle += 1
    return designs[: _NUM_DESIGNS.value]


def _named(designs: Sequence[Design], grounds: Grounds) -> tuple[float, float]:
    """Shares of programs that contain a subject of their own document, and of the next design's."""
    valid = [design for design in designs if design.source is not None]
    documents = [excerpt(design.context.document.text, grounds.excerpt_words) for design in valid]

    def share(documents: Sequence[str]) -> float:
        hits = [
            any(
                f'"{subject}' in design.source.code or f" {subject}" in design.source.code
                for subject in named_in(text, grounds.subjects)
            )
            for design, text in zip(valid, documents, strict=True)
        ]
        return sum(hits) / len(hits) if hits else 0.0

    return share(documents), share([*documents[1:], *documents[:1]])


if __name__ == "__main__":
    app.run(main)
