"""What the designer is told and how its reply is read.

The compact wording here is for small models that were warm-started on it: one line for each thing
the designer may look at. Nothing is repaired: the environment is the text inside the code fence.
"""

from spade_jax.config import Config
from spade_jax.errors import ContextOverflow
from spade_jax.grounding.excerpt import excerpt
from spade_jax.memory.environment_memory import compact
from spade_jax.text.chat import Message, render_prompt
from spade_jax.text.extract import extract_design
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.types import DesignContext, EnvironmentSource


def designer_messages(context: DesignContext, *, excerpt_words: int) -> list[Message]:
    """The conversation that asks for one environment.

    Args:
      context: skill, document and memory records to show.
      excerpt_words: words of the document that the prompt carries.
    """
    lines = [f"Skill: {context.skill}"]
    if context.document is not None:
        lines.append(f"Document: {excerpt(context.document.text, excerpt_words)}")
    lines += [f"Good: {compact(record)}" for record in context.positives]
    if context.negative is not None:
        lines.append(f"Bad: {compact(context.negative)}")
    lines.append("Design an environment.")
    return [Message(role="user", content="\n".join(lines))]


def designer_prompt(context: DesignContext, tokenizer: Tokenizer, config: Config) -> list[int]:
    """The prompt's token ids, with as much of the document as leaves room for a whole reply.

    Raises:
      ContextOverflow: there is no room even without a document.
    """
    room = config.sampling.max_context - config.designer.max_tokens
    num_words = config.corpus.excerpt_words
    while True:
        prompt = render_prompt(tokenizer, designer_messages(context, excerpt_words=num_words))
        if len(prompt) <= room:
            return prompt
        if num_words == 0:
            raise ContextOverflow(
                f"a designer prompt of {len(prompt)} tokens without a document leaves no room for "
                f"designer.max_tokens={config.designer.max_tokens} in sampling.max_context="
                f"{config.sampling.max_context}; raise max_context or lower memory.positives"
            )
        num_words = num_words * 3 // 4


def design_reply(code: str, hint: str) -> str:
    """The reply that `read_design` reads back; the warm start's targets are made of it."""
    return f"```python\n{code}```\nHint: {hint}"


def read_design(context: DesignContext, reply: str) -> EnvironmentSource:
    """The environment inside a designer's reply.

    Raises:
      ExtractionError: naming what the reply lacks.
    """
    code, hint = extract_design(reply)
    return EnvironmentSource(
        environment_id=context.environment_id,
        skill=context.skill,
        code=code,
        hint=hint,
        document_id=context.document.document_id if context.document else "",
    )
