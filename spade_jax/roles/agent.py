"""What the agent is told. Both conditions differ in the hint line of the first message alone."""

from spade_jax.text.chat import Message

ACTION_REMINDER = "Reply with \\boxed{action}."


def first_message(observation: str, *, hint: str | None) -> Message:
    """The first observation, with the hint below it when the episode is played with one."""
    content = f"{ACTION_REMINDER}\n{observation}"
    if hint is not None:
        content = f"{content}\n\nHINT: {hint}"
    return Message(role="user", content=content)


def next_message(observation: str) -> Message:
    """A later observation, as it is."""
    return Message(role="user", content=observation)


def action_reply(action: str) -> str:
    """The reply that plays `action`; the warm start's demonstrations are made of it."""
    return f"\\boxed{{{action}}}"
