r"""The model judge: an environment's source is read, and kept or not, by the policy or an endpoint.

The rung `judge` of the validation ladder looks for what running an environment does not show. It is told
to keep what is merely hard, and to keep in doubt. Its verdict is the last box: what comes before may be
weighing.
"""

import re

from spade_jax.roles.prompts.parts import source_block
from spade_jax.text.chat import Message
from spade_jax.text.extract import after_thinking
from spade_jax.types import EnvironmentSource, Setting

_RULES: dict[Setting, str] = {
    "games": """\
You check a text environment, which an agent plays over several turns by replying with actions in
\\boxed{}. Can it be solved, and is solving it worth something? Reject it only for one of these:
- The goal cannot be reached within its turns, in some instance or in all.
- Its program decides wrongly: a right way to the goal is not rewarded, or a wrong one is.
- The first observation gives away the answer, a hidden value that decides it, or the steps to it.
- Nothing that the agent can observe leads to the answer, so that it has to guess.
- The observations contradict the program about rules or about how actions are written.""",
    "tool_use": """\
You check a tool-use environment, in which an agent carries out instructions, one after the other, by
calling tools. An instruction counts as done when its criterion, a function of the state, is True.
For each criterion find the call that makes it True, and compare what the tool writes with what the
criterion reads, value and type. Reject the environment only for one of these:
- A criterion cannot become True by any calls, or raises, or compares values of different types.
- A criterion contradicts its instruction, leaves out a part of it, or asks for more than it says.
- What the instruction needs cannot be derived from it and from the results of tools.
- Most criteria are True before the agent has done anything.
- Earlier instructions, done as told, make a later one impossible.
- The final answer is never accepted.""",
}
_CLOSE = """\
Being hard is no fault, nor is chance that the agent can find out about. In doubt keep it.
Say briefly what you found. End with \\boxed{yes} to keep the environment or \\boxed{no} to reject it."""
_VERDICT = re.compile(r"\\boxed\{\s*(yes|no)\s*\}", re.IGNORECASE)


def judge_messages(source: EnvironmentSource, *, setting: Setting) -> list[Message]:
    """The conversation that asks whether an environment is to be kept."""
    return [
        Message(role="system", content=f"{_RULES[setting]}\n{_CLOSE}"),
        Message(role="user", content=f"{source_block(source)}\n\nIs it to be kept?"),
    ]


def read_verdict(reply: str) -> bool | None:
    r"""True for a last box `\boxed{yes}`, False for `\boxed{no}`, None where the reply has neither."""
    verdicts = _VERDICT.findall(after_thinking(reply))
    return verdicts[-1].lower() == "yes" if verdicts else None
