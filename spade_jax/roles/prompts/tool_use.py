"""The full designer prompt for tool use: instructions that come one by one, carried out by calling tools.

Each design takes place in one domain and has one variant of the task, both drawn from the context's seed,
so that a run meets all of them in steady proportions.
"""

import dataclasses
import random

from spade_jax.config import Config
from spade_jax.roles.prompts import parts
from spade_jax.roles.prompts.examples import TOOL_USE
from spade_jax.roles.skills import skill_named
from spade_jax.text.chat import Message
from spade_jax.types import DesignContext

DOMAINS = (
    "an online shop: orders, stock, returns, refunds",
    "travel: trips, seats, bookings, changes",
    "a telephone company: plans, lines, data packs, bills",
    "a bank: accounts, transfers, cards, limits",
    "calendars: meetings, rooms, guests, reminders",
    "files: folders, documents, versions, permissions",
    "a shopping cart: articles, coupons, addresses, delivery slots",
    "a support desk: tickets, priorities, owners, replies",
    "a smart home: rooms, devices, scenes, schedules",
    "project tracking: projects, tasks, owners, due dates",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A kind of task.

    Attributes:
      weight: its share among the designs, relative to the other weights.
    """

    name: str
    weight: int
    text: str


VARIANTS = (
    Variant(
        name="execute",
        weight=3,
        text="Every instruction says what is wanted; the agent finds the ids and chooses the calls.",
    ),
    Variant(
        name="read_then_write",
        weight=2,
        text="At least one instruction depends on records that must be read and compared first (the\n"
        "cheapest, the latest, all that are overdue), and then changes something accordingly.",
    ),
    Variant(
        name="miss_param",
        weight=1,
        text="One instruction leaves out a value that its call needs and that no other tool can look up. A\n"
        "tool `ask_user(question)` answers with that value while the instruction is pending. The value\n"
        "comes from the seed and cannot be guessed; the criterion demands it.",
    ),
    Variant(
        name="irrelevant",
        weight=1,
        text="One instruction, not the first, asks for something that no tool can do. A tool\n"
        "`decline(reason)` is there from the start; called while that instruction is pending, it records so\n"
        "in the state, and the criterion demands that record and that nothing else was changed meanwhile.",
    ),
)

_AIM = """\
You design tool-use environments: small Python programs in which an agent, a language model, carries
out a user's instructions by calling tools over several turns. The agent learns by acting in them, so
they ask for work that it has not quite mastered. A program checks each environment before the agent
meets it.

# A good environment
- The user gives three to five instructions. The next one is revealed only when the one before is done,
  and each needs one or more calls that change the state.
- Each instruction has a criterion: a function of the state that is True when it is done. Criterion and
  instruction agree exactly: whatever the instruction says (which record, how much, for whom, which
  kind) the criterion compares, and it asks for nothing that the instruction does not say.
- Right after `reset` every criterion is False. Follow each one by hand: which call writes the value
  that it reads, and with which type? "3" is not 3, and a name is not an id.
- Ids, prices, free places and the like are found with tools; neither the instructions nor the tools'
  descriptions give them away, nor say which tool to call.
- Instances differ. The seed decides names, ids and amounts, so nothing learned by heart wins.
- There are three to eight tools. At least one has a required argument with an `enum`, and one or two
  belong to the domain but are not needed. The same call in the same state always does the same.
- A call with wrong arguments changes nothing and says what was wrong. What can be done wrongly can be
  put right again, unless the task is about care.
Never write instructions that spell out the calls, criteria that hold whatever is done, or long lists
of records to read."""

_CONTRACT = """# Contract
One class whose name ends in Env and which inherits from ToolUseBaseEnv. That class is there already;
import nothing for it. It reads calls and answers, so do not define step, execute_tool or get_tools.
- `reset(self, seed=None)` sets, from the seed alone: `self.turn_count = 0`, `self._call_history = []`,
  `self._state` (a dict), `self._tools` (name: {"description": ..., "parameters": JSON schema}),
  `self._user_messages` (the instructions), `self._message_criteria` (as many functions of the state),
  `self._current_msg = 0`, `self._expected_answer = "done"`. It returns the first instruction and {}.
  The constructor calls it too, so let it use nothing that is set elsewhere.
- `tool_NAME(self, ...)` for each name in `_tools`, with the argument names of its schema. It returns
  text that ends with `self._advance_if_done()`, on every path.
- `_advance_if_done(self)` is yours to write, as in the example: while the pending criterion holds it
  goes on to the next instruction; it returns the text that announces it, or that all are done and
  <answer>done</answer> is due, or "" if nothing changed.
- `_check_answer(self, answer)` is True only for "done" with all instructions done; that wins, with
  reward 1.0.
- `solution(self)` returns the calls that win the current instance from its start, one
  <tool_call>{"name": ..., "arguments": {...}}</tool_call> on each line, and <answer>done</answer> as
  the last line. They are played: they must win, and without the calls that change something they must
  not. It may be asked for at any time, so let `reset` keep what it needs.
- The agent has MAX_TURNS replies in all. The solution's calls and its answer take at most three
  quarters of them.
- Results of tools have fewer than 1500 characters.
Common slips: a lambda that refers to a loop variable, which has changed when it is called; a criterion
that raises; a key of the state that no tool writes; an instruction in an f-string with single braces."""

_DOCUMENT = """\
Take names, quantities, rules or a procedure from it where they suit the domain; it need not decide
the task."""

_DIFFICULTY = {
    "": "",
    "easy": "easy. Three instructions of one or two calls each, three or four tools.",
    "medium": "medium. Three or four instructions of two or three calls each, four to six tools; several"
    " values must be looked up.",
    "hard": "hard. Four or five instructions of three or more calls each, six to eight tools; values must be"
    " compared or worked out from several records, and later instructions build on what earlier ones did.",
}


def tool_use_messages(context: DesignContext, *, config: Config, excerpt_words: int) -> list[Message]:
    """The conversation that asks for one tool-use environment.

    Args:
      context: what this design is to be.
      config: of the run, whose limits the prompt states.
      excerpt_words: words of the document that the prompt carries; 0 is as without a document.

    Raises:
      ConfigError: the context's skill is unknown.
    """
    skill = skill_named(context.skill)
    rng = random.Random(context.seed)
    system = [
        _AIM,
        _CONTRACT.replace("MAX_TURNS", str(config.agent.max_turns)),
        parts.sandbox_rules(config),
        parts.example_block(TOOL_USE, config),
        parts.reply_rules("tool_use", config),
    ]
    user = [
        parts.task(skill, _DIFFICULTY[context.difficulty]),
        _assignment(context, rng),
        parts.grounding(context, skill, rng, use=_DOCUMENT, excerpt_words=excerpt_words),
        parts.memory(context),
        parts.change(context),
        "First say in a few sentences what the instructions are, what each criterion compares, and which\n"
        "calls make it True. Then write the environment in the form that was given.",
    ]
    return parts.conversation(system, user)


def _assignment(context: DesignContext, rng: random.Random) -> str:
    """The domain and the kind of task; "" for a design that stays in the world of its parent."""
    if parts.keeps_world(context):
        return ""
    [variant] = rng.choices(VARIANTS, weights=[variant.weight for variant in VARIANTS])
    return f"Domain: {rng.choice(DOMAINS)}. Carry ideas over into it.\nKind of task: {variant.text}"
