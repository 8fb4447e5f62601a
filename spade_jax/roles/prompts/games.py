r"""The full designer prompt for games, whose actions are text in `\boxed{}`.

What it asks for is what validation checks and what regret pays for: an environment that is not won by
guessing or by reading its first observation, and is won by finding things out.
"""

import random

from spade_jax.config import Config
from spade_jax.roles.prompts import parts
from spade_jax.roles.prompts.examples import GAME
from spade_jax.roles.skills import skill_named
from spade_jax.text.chat import Message
from spade_jax.types import DesignContext

_AIM = """\
You design text environments: small Python programs in which an agent, a language model, acts over
several turns to reach a goal. The agent learns by acting in them, so they ask for reasoning that it
has not quite mastered. A program checks each environment before the agent meets it.

# A good environment
- The agent must act to learn. Part of the state is hidden. Each observation tells something about it,
  and that decides the next action: no single action and no fixed list of actions wins every instance.
- It is fair. A careful agent can win by what the observations tell and by general knowledge. Nothing
  is a password that only the author knows, and no rule changes without a sign.
- The first observation states the goal, what actions there are and how they are written, with words
  in capitals where values go. It never holds the answer, a hidden value, or the formula or the steps
  that lead to the answer.
- Instances differ. The seed decides the hidden values and the start, so nothing learned by heart wins.
- Guessing loses. Random actions, or one action repeated, win next to never: many answers are possible.
- Each action changes the state or tells something, and the observation says what. An action that
  cannot be read gets a reminder of the format and reward 0.0, and uses up its turn.
Never write a quiz of one question, a puzzle told in full at the start, or one question that is asked
until the reply is right."""

_CONTRACT = r"""# Contract
One class whose name ends in Env. It is made without arguments: those of `__init__` have defaults.
- `reset(self, seed=None)` returns `(observation, {})`. It sets the whole state from the seed alone,
  whatever was played before.
- `step(self, action)` returns `(observation, reward, terminated, truncated, {})` on every path: text,
  float, bool, bool, dict. `action` is a string such as "\boxed{open 3}"; read what is in the box.
- terminated is True, with reward 1.0, when the goal is reached; it is True, with reward 0.0, when the
  goal is out of reach. Only the reward of that last turn counts: give 0.0 before. Test the goal on
  the state, never on the wording of an action.
- `self.max_turns` is at most MAX_TURNS; `self.turn_count` counts the turns. When they run out before
  an end, truncated is True and the episode is lost. Good play needs half to three quarters of them.
- `solution(self)` returns the actions that win the current instance from its start, one "\boxed{...}"
  on each line and none that is not needed. They are played: they must win, and with one of them changed
  they must not. It is a method, so let no attribute have this name.
- No action makes `step` raise: empty, without a box, a word for a number, a number out of range.
- Observations have fewer than 1500 characters.
Common slips: single braces inside an f-string (write text with \boxed{} as a plain string); an
attribute that is used before `reset` sets it; an instance that starts at its goal or cannot be won."""

_DOCUMENT = """\
Take one relation, process, mechanism or set of quantities from it and make it the mechanics of the
environment, so that whoever understands it plays better."""

_DIFFICULTY = {
    "": "",
    "easy": "easy. One thing is hidden, two or three good actions win; a careful agent mostly wins.",
    "medium": "medium. Two hidden things act together, four to six good actions win; a careful agent wins"
    " about half of the time.",
    "hard": "hard. Rules act on each other, at least six good actions win, and some mistakes cannot be"
    " undone; a strong agent loses more often than it wins, but reasoning still wins.",
}


def games_messages(context: DesignContext, *, config: Config, excerpt_words: int) -> list[Message]:
    """The conversation that asks for one game.

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
        parts.example_block(GAME, config),
        parts.reply_rules("games", config),
    ]
    user = [
        parts.task(skill, _DIFFICULTY[context.difficulty]),
        parts.grounding(context, skill, rng, use=_DOCUMENT, excerpt_words=excerpt_words),
        parts.memory(context),
        parts.change(context),
        "First say in a few sentences what is hidden, what each action tells, and why guessing loses. Then\n"
        "write the environment in the form that was given.",
    ]
    return parts.conversation(system, user)
