"""A chat endpoint that speaks the OpenAI API, asked for hints and judgements.

Imported only by a run whose config asks for an endpoint, as the `openai` package comes with the extra of
that name. Tries again, with growing pauses, what may pass: a lost connection, a late answer, too many
requests, a fault of the server, an empty completion.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Self

from spade_jax.config import EndpointConfig
from spade_jax.errors import ConfigError, EndpointError
from spade_jax.text.chat import Message

try:
    import openai
    from openai.types.chat import ChatCompletion
except ModuleNotFoundError as error:
    raise EndpointError(
        "asking an endpoint needs the openai package: pip install 'spade_jax[endpoint]'"
    ) from error

MAX_CONCURRENT = 16
# Before the second try of an empty completion; doubles from try to try.
PAUSE_SECONDS = 1.0


class Endpoint:
    """One model at one endpoint; an async context manager, which closes the connections."""

    def __init__(self, config: EndpointConfig):
        """Connects to nothing yet.

        Raises:
          ConfigError: the config names no endpoint or no model.
          EndpointError: the key's environment variable is not set.
        """
        if not config.base_url or not config.model:
            raise ConfigError(
                f"endpoint.base_url={config.base_url!r} and endpoint.model={config.model!r} must both be set:"
                " the config asks an endpoint for hints or judgements"
            )
        self._config = config
        key = os.environ.get(config.api_key_variable)
        if not key:
            raise self._error(
                f"the environment variable {config.api_key_variable} is not set; put the key there, or any"
                " text where the endpoint wants none (endpoint.api_key_variable names another variable)"
            )
        self._client = openai.AsyncOpenAI(
            base_url=config.base_url, api_key=key, timeout=config.timeout, max_retries=config.max_retries
        )
        self._places = asyncio.Semaphore(MAX_CONCURRENT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, messages: Sequence[Message], *, max_tokens: int, temperature: float) -> str:
        """The answer's text, never empty.

        Args:
          max_tokens: longest answer, thinking included.

        Raises:
          EndpointError: no answer after all tries, or the endpoint refuses; says what to do.
        """
        tries = self._config.max_retries + 1
        for attempt in range(tries):
            if attempt > 0:
                await asyncio.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            async with self._places:
                completion = await self._complete(messages, max_tokens=max_tokens, temperature=temperature)
            choice = completion.choices[0] if completion.choices else None
            if choice is not None and choice.message.content and choice.message.content.strip():
                return choice.message.content
        reason = choice.finish_reason if choice is not None else "no choice"
        raise self._error(
            f"the completion was empty in {tries} tries ({reason}); where the model thinks first, allow it"
            f" more than max_tokens={max_tokens}"
        )

    async def _complete(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float
    ) -> ChatCompletion:
        conversation: Any = [{"role": message.role, "content": message.content} for message in messages]
        try:
            completion = await self._client.chat.completions.create(
                model=self._config.model,
                messages=conversation,
                max_completion_tokens=max_tokens,
                temperature=temperature,
            )
        except openai.APITimeoutError as error:
            raise self._error(
                f"no answer within {self._config.timeout:g} s; raise endpoint.timeout or ask for less"
            ) from error
        except openai.APIConnectionError as error:
            raise self._error(
                f"no connection ({error.__cause__ or error}); check that it runs, and endpoint.base_url"
            ) from error
        except openai.APIStatusError as error:
            raise self._error(
                f"status {error.status_code}: {error.message}; {self._advice(error)}"
            ) from error
        except (openai.APIError, ValueError) as error:
            raise self._error(f"the answer cannot be read ({error}); {_WRONG_ADDRESS}") from error
        if not isinstance(completion, ChatCompletion):
            raise self._error(f"the answer is no chat completion; {_WRONG_ADDRESS}")
        return completion

    def _advice(self, error: openai.APIStatusError) -> str:
        match error.status_code:
            case 401 | 403:
                return f"check the key in {self._config.api_key_variable}"
            case 404:
                return f"check endpoint.model; {_WRONG_ADDRESS}"
            case 429:
                return "it was asked too often, or no quota is left: wait, or raise endpoint.max_retries"
            case status if status >= 500:
                return "the server failed: see its own log, or raise endpoint.max_retries"
        return "the endpoint refuses the request: its message says which part"

    def _error(self, detail: str) -> EndpointError:
        return EndpointError(f"endpoint {self._config.base_url}, model {self._config.model}: {detail}")


_WRONG_ADDRESS = "check that endpoint.base_url is where the API starts, often an address that ends in /v1"
