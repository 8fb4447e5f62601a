"""What the agent is told. Both conditions differ in the hint line of the first message alone."""

from typing import Literal

from spade_jax.text.chat import Message
from spade_jax.types import Setting

ACTION_REMINDER = "Reply with \\boxed{action}."
INSTRUCTION = """\
You are playing a text game over several turns. Each turn brings an observation, and you answer it with
one valid action. Think briefly about what you have seen so far, then write your action in \\boxed{}, in
the form that the observation asks for.

Observation:
"""


def first_message(
    observation: str,
    *,
    hint: str | None,
    prompt: Literal["compact", "full"] = "compact",
    setting: Setting = "games",
) -> Message:
    """The first observation, with the hint below it when the episode is played with one.

    Args:
      prompt: how much a game's first message says about acting; tools speak for themselves.
    """
    content = observation
    if setting == "games":
        content = f"{ACTION_REMINDER}\n{content}" if prompt == "compact" else f"{INSTRUCTION}{content}"
    if hint is not None:
        content = f"{content}\n\nHINT: {hint}"
    return Message(role="user", content=content)


def next_message(observation: str) -> Message:
    """A later observation, as it is."""
    return Message(role="user", content=observation)


def action_reply(action: str) -> str:
    """The reply that plays `action`; the warm start's demonstrations are made of it."""
    return f"\\boxed{{{action}}}"
