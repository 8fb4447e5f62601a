"""What the full designer prompts of both settings share: blocks of text, each under its heading.

The system message says what holds for every design of a run; the user message says what this one is
to be: skill, difficulty, document or ideas, memory. Text that the run did not write itself (documents,
past programs) stands between marks that it cannot close.
"""

import random
import re
from collections.abc import Iterable

from spade_jax.config import Config
from spade_jax.roles.prompts.examples import Example
from spade_jax.roles.skills import Skill
from spade_jax.text.chat import Message
from spade_jax.text.extract import MAX_HINT_CHARACTERS
from spade_jax.types import DesignContext, EnvironmentSource, MemoryRecord, Setting

SNIPPET_CHARACTERS = 2000
# A parent is shown whole, as nobody can change half a program; this keeps an odd one from filling a prompt.
PARENT_CHARACTERS = 16_000
NUM_IDEAS = 3

HINT_RULES: dict[Setting, str] = {
    "games": f"""\
The hint is shown below the first observation of every instance, whatever its seed, so it has to help
in all of them.
- It gives the insight that play needs: what to find out first, how to read the answers, in which order
  to act, which mistake to avoid, how an action is written.
- It speaks only of what the agent can see.
- It holds no number, name, word or action that differs between instances, and never the answer.
- It has one to three sentences and at most {MAX_HINT_CHARACTERS} characters.""",
    "tool_use": f"""\
The hint is shown below the first instruction of every instance, whatever its seed, so it has to help
in all of them.
- It gives the phases of the work in order, by what tools are for: look up, compare, ask, change,
  confirm.
- It holds no id, name, path, date or amount that differs between instances, and is no list of calls to
  copy.
- It says that instructions come one at a time and that <answer>done</answer> ends the work; where an
  instruction lacks a value or cannot be carried out, that one has to ask or to decline.
- It has two or three sentences and at most {MAX_HINT_CHARACTERS} characters.""",
}

_CHANGES = {
    "harder": """\
Write a harder variant of this environment. Keep its world and its kind of action; add a hidden value,
a rule that acts on another rule or a choice that costs something, or leave fewer turns to spare.
Longer texts, larger numbers and rules that the agent is not told do not count.""",
    "easier": """\
Write an easier variant of this environment. Keep its world and its kind of action; take away a hidden
value or a rule, say more clearly what each action did, or leave more turns to spare. Guessing must
still lose.""",
    "different": """\
Write a different environment for the same skill and about as hard: another world, other actions,
another hidden state, and another kind of reasoning.""",
}


def sandbox_rules(config: Config) -> str:
    """What generated code may use, as the sandbox enforces it."""
    limits = config.sandbox
    return f"""\
# Where the program runs
- It may import the standard library's modules for computing (random, re, math, itertools, collections,
  functools, heapq, json, fractions, statistics, string, datetime, dataclasses, copy, typing), numpy and
  math_verify. Any other package is missing.
- There are no files, no network, no processes, no threads and no input. What is printed is lost. Calls
  of open, input, eval and exec are rejected.
- All chance comes from `rng = random.Random(seed)`, made in `reset`. The same seed and the same actions
  must give the same texts and rewards in another process: use no clock, no random.random() and the
  like, no hash(), no id(), and never the order of a set.
- Loading may take {limits.load_timeout:g} s and each call {limits.step_timeout:g} s. There are
  {limits.memory_mb} MB of memory."""


def example_block(example: Example, config: Config) -> str:
    """The example, in the form of a reply."""
    hint = f"\nHint: {example.hint}" if config.hint.source == "design" else ""
    return f"""\
# Example
It shows the form. Take another world, other mechanics and other names for yours.

```python
{example.code}```{hint}"""


def reply_rules(setting: Setting, config: Config) -> str:
    """The form of the designer's reply."""
    block = """\
# Your reply
A short plan, then one block that starts with the line ```python and ends with the line ```. It holds
the whole program, every method written out, in about 60 to 250 lines."""
    if config.hint.source != "design":
        return f"{block} Write nothing after it."
    return f"""{block}
After the block write one line that starts with "Hint: ", and nothing after that.
{HINT_RULES[setting]}"""


def task(skill: Skill, difficulty: str) -> str:
    """What to write.

    Args:
      difficulty: described in words, or "" to say nothing.
    """
    text = f"# Task\nWrite one environment for the skill {skill.name}: {skill.description}"
    return f"{text}\nDifficulty: {difficulty}" if difficulty else text


def grounding(
    context: DesignContext, skill: Skill, rng: random.Random, *, use: str, excerpt_words: int
) -> str:
    """The document, or without one some of the skill's ideas; "" where neither is wanted.

    Args:
      use: what the document is there for.
      excerpt_words: words of it that are shown; 0 is as without a document.
    """
    if context.document is None or excerpt_words == 0:
        if keeps_world(context):
            return ""
        ideas = [f"- {idea}" for idea in rng.sample(skill.ideas, NUM_IDEAS)]
        return "\n".join(["# Ideas", "Start from one of these, or from a better one of your own:", *ideas])
    text = _first_words(context.document.text, excerpt_words)
    return f"""\
# Document
{use}
The agent never sees the document: never mention it, and let the observations say all that is needed.
<document>
{_quoted(text).replace("</document", "< /document")}
</document>"""


def memory(context: DesignContext) -> str:
    """Past environments that taught much and one that taught nothing; "" without any."""
    lines = []
    if context.positives:
        lines.append("The agent learned much in these. See why, and write something else.")
        lines += [_code_block(record, SNIPPET_CHARACTERS) for record in context.positives]
    if context.negative is not None:
        record = context.negative
        fault = "easy" if record.win_rate > 0.5 else "hard"
        lines.append(f"This one was too {fault} (win rate {record.win_rate:.2f}): {_class_name(record)}")
    return "\n".join(["# Past environments", *lines]) if lines else ""


def keeps_world(context: DesignContext) -> bool:
    """Whether the design stays in the world of its parent, so that it needs no idea for another."""
    return context.parent is not None and context.change in ("harder", "easier")


def change(context: DesignContext) -> str:
    """The record that the design is to be a change of, and which change; "" for a new design."""
    if context.parent is None or not context.change:
        return ""
    return "\n".join(
        [
            "# The environment to change",
            _code_block(context.parent, PARENT_CHARACTERS),
            f"{_CHANGES[context.change]}\nThe same program with other numbers or words is rejected. Give the"
            " class a new name.",
        ]
    )


def source_block(source: EnvironmentSource) -> str:
    """A whole program, for whoever is asked about it."""
    return f"# The environment's program\n{_fenced(source.code)}"


def conversation(system: Iterable[str], user: Iterable[str]) -> list[Message]:
    """A system and a user message made of blocks, with a blank line between those that are not empty."""
    return [
        Message(role="system", content="\n\n".join(filter(None, system))),
        Message(role="user", content="\n\n".join(filter(None, user))),
    ]


def _code_block(record: MemoryRecord, most: int) -> str:
    code = record.source.code
    if len(code) > most:
        code = f"{code[:most]}\n# (the rest is left out)"
    header = f"{record.source.skill}, win rate {record.win_rate:.2f}, regret {record.regret:.2f}:"
    return f"{header}\n{_fenced(code)}"


def _fenced(code: str) -> str:
    return f"```python\n{_quoted(code).rstrip()}\n```"


def _class_name(record: MemoryRecord) -> str:
    names = re.findall(r"^class\s+(\w+Env)\b", record.source.code, re.MULTILINE)
    return names[-1] if names else record.source.environment_id


def _first_words(text: str, num_words: int) -> str:
    """The first words, in their layout."""
    words = list(re.finditer(r"\S+", text))
    if len(words) <= num_words:
        return text.strip()
    return f"{text[: words[num_words - 1].end()].lstrip()}\n[cut off here]"


def _quoted(text: str) -> str:
    """Text in which no chat template finds a mark of its own, such as the end of a message."""
    return text.replace("<|", "< |")
