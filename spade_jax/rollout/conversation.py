"""A role's side of a conversation: messages go in, sampled replies come out, token streams remain.

Tokens go in and tokens come out: what was sampled is never decoded and encoded again. A context grows
by the sampled ids and by what the chat format puts after them. Where the format rewrites what came
before, as templates that strip earlier thinking do, the context so far becomes a stream of its own and
a new one starts, so that each reply is trained on exactly the context that it was sampled in.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from spade_jax.sampling.engine import Session
from spade_jax.sampling.methods import SamplingParams
from spade_jax.seeding import derive_seed
from spade_jax.text.chat import Chat, Message
from spade_jax.types import TokenStream

# A reply may be cut short by the end of the context, but it is not begun with less room than this.
LEAST_ROOM = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """One sampled reply.

    Attributes:
      text: without its stop token.
      finished: whether it ended with a stop token.
    """

    text: str
    finished: bool


class Conversation:
    """One conversation in one session of the engine."""

    def __init__(
        self,
        session: Session,
        chat: Chat,
        *,
        sampling: SamplingParams,
        max_context: int,
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool = False,
    ):
        """Starts without messages.

        Args:
          sampling: of every reply; the seed is that of the first context.
          max_context: tokens that the context may hold.
          tools: function schemas that the chat format tells the model of.
          thinking: whether the chat format asks for thinking.
        """
        self._session = session
        self._chat = chat
        self._sampling = sampling
        self._max_context = max_context
        self._tools = tools
        self._thinking = thinking
        self._messages: list[Message] = []
        self._streams: list[TokenStream] = []
        self._reply: list[int] = []
        self._reply_start = 0
        self._untrained: list[slice] = []

    async def ask(self, messages: Sequence[Message]) -> Reply | None:
        """Adds messages and samples a reply to them; None where the context has no room for one."""
        told = [*self._messages, *messages]
        new_ids = None
        if self._messages:
            new_ids = self._chat.continuation(
                self._messages[:-1], self._reply, messages, tools=self._tools, thinking=self._thinking
            )
            if new_ids is None:
                self._streams.append(self._stream())
                self._session.restart()
                self._untrained = []
        if new_ids is None:
            new_ids = self._chat.prompt(told, tools=self._tools, thinking=self._thinking)
        room = self._max_context - self._session.num_tokens - len(new_ids)
        if room < min(self._sampling.max_tokens, LEAST_ROOM):
            return None
        self._reply_start = self._session.num_tokens + len(new_ids)
        completion = await self._session.generate(new_ids, self._params())
        self._reply = completion.tokens.tolist()
        text = self._chat.read_reply(self._reply)
        self._messages = [*told, Message(role="assistant", content=text)]
        return Reply(text=text, finished=completion.finish_reason == "stop")

    def leave_out_last_reply(self) -> None:
        """The last reply stays in the context and is not trained on."""
        self._untrained.append(slice(self._reply_start, self._session.num_tokens))

    def streams(self) -> tuple[TokenStream, ...]:
        """The contexts so far, each with a loss mask that is True where a reply was sampled."""
        return (*self._streams, self._stream())

    def _params(self) -> SamplingParams:
        """The keys of draws come from seed and position, which a later context has had before."""
        if not self._streams:
            return self._sampling
        seed = derive_seed(self._sampling.seed, "context", len(self._streams))
        return dataclasses.replace(self._sampling, seed=seed)

    def _stream(self) -> TokenStream:
        stream = self._session.stream(self._sampling.temperature)
        if not self._untrained:
            return stream
        mask = stream.loss_mask.copy()
        for left_out in self._untrained:
            mask[left_out] = False
        return dataclasses.replace(
            stream, loss_mask=mask, behavior_logprobs=np.where(mask, stream.behavior_logprobs, 0)
        )
