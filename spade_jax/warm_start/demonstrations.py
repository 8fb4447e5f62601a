"""Agent conversations for the warm start: a mediocre scripted player in easy environments.

The player sees the observations alone, as the agent does. With a hint it plays well, without one it
errs often, so that there is room above it and the hint means something.
"""

import asyncio

from spade_jax.rollout.episode import function_schema, opening, take_action, turn_limit, use_tools
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_rng
from spade_jax.text.chat import Message, tell_tools
from spade_jax.warm_start.designs import make_source
from spade_jax.warm_start.grounds import Grounds

EPISODES_PER_ENVIRONMENT = 8
CONCURRENT_ENVIRONMENTS = 32


async def demonstrations(
    num_episodes: int,
    *,
    seed: int,
    grounds: Grounds,
    sandbox: SandboxPool,
    skill_without_hint: float,
    skill_with_hint: float,
    max_turns: int,
) -> list[list[Message]]:
    """`num_episodes` conversations of play, half of them with a hint.

    Args:
      grounds: what the environments are about.
      skill_without_hint, skill_with_hint: share of moves that are the scripted player's best.

    Raises:
      EnvironmentFailure: a family's program broke its contract, which is a fault of the family.
    """
    families = list(grounds.syllabus.taught.values())
    gate = asyncio.Semaphore(CONCURRENT_ENVIRONMENTS)

    async def play(index: int) -> list[list[Message]]:
        rng = derive_rng(seed, "warm_start/demonstration", index)
        family = families[index % len(families)]
        document = rng.choice(grounds.documents)
        source = make_source(family, rng.choice(family.levels[0]), grounds.word_for(document))
        conversations = []
        async with gate, await sandbox.open(source.code) as environment:
            for episode in range(EPISODES_PER_ENVIRONMENT):
                with_hint = episode % 2 == 1
                skill = skill_with_hint if with_hint else skill_without_hint
                hint = source.hint if with_hint else None
                observation = (await environment.reset(rng.getrandbits(31))).observation
                observations = [observation]
                schemas = [function_schema(tool) for tool in environment.tools]
                messages = [opening(observation, environment, hint=hint)]
                if schemas:
                    messages = tell_tools(messages, schemas)
                act = use_tools if schemas else take_action
                for _ in range(turn_limit(max_turns, environment)):
                    if rng.random() < skill:
                        action = family.best_action(observations, hint or "", rng)
                    else:
                        action = rng.choice(family.actions(observations))
                    reply = grounds.syllabus.reply(action)
                    messages.append(Message(role="assistant", content=reply))
                    outcome = await act(environment, observations[-1], reply)
                    if outcome.terminated or outcome.truncated:
                        break
                    observations += [message.content for message in outcome.messages]
                    messages += outcome.messages
                else:
                    messages.pop()
                conversations.append(messages)
        return conversations

    num_environments = -(-num_episodes // EPISODES_PER_ENVIRONMENT)
    played = await asyncio.gather(*(play(index) for index in range(num_environments)))
    return [conversation for episodes in played for conversation in episodes][:num_episodes]
