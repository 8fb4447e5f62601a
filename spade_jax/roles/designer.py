"""What the designer is told and how its reply is read.

The compact wording here is for small models that were warm-started on it: one line for each thing
the designer may look at. The full one is in `spade_jax.roles.prompts`. Nothing is repaired: the
environment is the text inside the code fence.
"""

from spade_jax.config import Config
from spade_jax.errors import ContextOverflow
from spade_jax.grounding.excerpt import excerpt
from spade_jax.memory.environment_memory import compact
from spade_jax.roles.prompts.games import games_messages
from spade_jax.roles.prompts.tool_use import tool_use_messages
from spade_jax.text.chat import Chat, Message
from spade_jax.text.extract import extract_design
from spade_jax.types import DesignContext, EnvironmentSource

_FULL_MESSAGES = {"games": games_messages, "tool_use": tool_use_messages}


def designer_messages(context: DesignContext, *, config: Config, excerpt_words: int) -> list[Message]:
    """The conversation that asks for one environment.

    Args:
      context: skill, document, memory records and change to ask for.
      config: of the run; says which wording and which setting.
      excerpt_words: words of the document that the prompt carries.

    Raises:
      ConfigError: the full wording is asked for a skill that it does not know.
    """
    if config.designer.prompt == "full":
        return _FULL_MESSAGES[config.setting](context, config=config, excerpt_words=excerpt_words)
    return _compact_messages(context, excerpt_words=excerpt_words)


def _compact_messages(context: DesignContext, *, excerpt_words: int) -> list[Message]:
    lines = [f"Skill: {context.skill}"]
    if context.difficulty:
        lines.append(f"Difficulty: {context.difficulty}")
    if context.document is not None:
        lines.append(f"Document: {excerpt(context.document.text, excerpt_words)}")
    lines += [f"Good: {compact(record)}" for record in context.positives]
    if context.negative is not None:
        lines.append(f"Bad: {compact(context.negative)}")
    if context.parent is not None and context.change:
        lines.append(f"Make {context.change}: {compact(context.parent)}")
    lines.append("Design an environment.")
    return [Message(role="user", content="\n".join(lines))]


def fitting_messages(context: DesignContext, chat: Chat, config: Config) -> list[Message]:
    """The same conversation, with as much of the document as leaves room for a whole reply.

    Raises:
      ContextOverflow: there is no room even without a document.
    """
    room = config.sampling.max_context - config.designer.max_tokens
    num_words = config.corpus.excerpt_words
    while True:
        messages = designer_messages(context, config=config, excerpt_words=num_words)
        num_tokens = len(chat.prompt(messages, thinking=config.designer.thinking))
        if num_tokens <= room:
            return messages
        if num_words == 0:
            raise ContextOverflow(
                f"a designer prompt of {num_tokens} tokens without a document leaves no room for "
                f"designer.max_tokens={config.designer.max_tokens} in sampling.max_context="
                f"{config.sampling.max_context}; raise max_context or lower memory.positives"
            )
        num_words = num_words * 3 // 4


def design_reply(code: str, hint: str) -> str:
    """The reply that `read_design` reads back; the warm start's targets are made of it."""
    return f"```python\n{code}```\nHint: {hint}"


def repair_message(feedback: str) -> Message:
    """What follows a reply whose environment was rejected: why, and to write it again.

    Args:
      feedback: what validation found.
    """
    return Message(
        role="user",
        content=f"The environment was rejected:\n{feedback}\n\nPut this right, look for other mistakes, and"
        " write the whole reply again in the same form.",
    )


def read_design(context: DesignContext, reply: str, *, needs_hint: bool = True) -> EnvironmentSource:
    """The environment inside a designer's reply.

    Args:
      needs_hint: whether the reply has to bring the hint; without, the source's hint is "".

    Raises:
      ExtractionError: naming what the reply lacks.
    """
    code, hint = extract_design(reply, needs_hint=needs_hint)
    return EnvironmentSource(
        environment_id=context.environment_id,
        skill=context.skill,
        code=code,
        hint=hint,
        document_id=context.document.document_id if context.document else "",
    )
