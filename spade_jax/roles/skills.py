"""The skills that a designer can be asked for, with ideas for environments without a document.

A skill is known by its name, which also stands in configs and in the memory. Descriptions and ideas are
for the full prompts; the compact ones carry the name alone.
"""

import dataclasses

from spade_jax.errors import ConfigError
from spade_jax.types import Setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skill:
    """What an environment exercises.

    Attributes:
      description: what the agent must do, one sentence.
      ideas: starting points, each for a whole environment.
    """

    name: str
    setting: Setting
    description: str
    ideas: tuple[str, ...]


SKILLS = (
    Skill(
        name="Mathematical Reasoning",
        setting="games",
        description="Find out quantities and how they depend on each other, and calculate with them to act.",
        ideas=(
            "a machine with hidden gear ratios that must bring a counter to an exact value",
            "filling and emptying vessels of unknown size until one holds the amount that is asked for",
            "buying and selling at prices that follow a hidden linear rule, to end with an exact sum",
            "finding two hidden numbers by asking for remainders, with few questions",
            "steering a rocket whose speed adds up, to stop at a given height",
            "mixing solutions of unknown strength to reach a given one",
        ),
    ),
    Skill(
        name="Logical Deduction",
        setting="games",
        description="Draw conclusions that must hold from facts gathered one by one, and act on them.",
        ideas=(
            "asking guests, some of whom always lie, until it is certain where the ring is",
            "finding which of several fuses feeds which rooms by switching and looking",
            "placing people at a table from constraints that are told one at a time on request",
            "a locked archive whose doors open by rules about the doors opened before",
            "finding a faulty part with tests that each tell about a group of parts",
            "a code of colours in which each trial tells how many are in place",
        ),
    ),
    Skill(
        name="Spatial Reasoning",
        setting="games",
        description="Keep track of positions, directions and shapes that the text shows only in part.",
        ideas=(
            "a rover that sees one cell ahead and must bring a sample back to its base",
            "folding a strip of numbered fields so that given numbers lie on each other",
            "a lift and revolving rooms, where each move turns what is left and right",
            "pushing crates through a small store without blocking the way out",
            "a cube rolled over a board so that a marked face ends on top",
            "drawing a map of a cave from echoes, then naming the shortest way out by walking it",
        ),
    ),
    Skill(
        name="Pattern Recognition",
        setting="games",
        description="Find the rule behind examples that one asks for, and apply it to new cases.",
        ideas=(
            "a gate that lets some words through; feed it words, then pass five of its own",
            "signals of a beacon that depend on the hour in a hidden rhythm",
            "a loom whose next row follows from the two rows before",
            "animals sorted into pens by two of their features; find which, then sort the rest",
            "a melody machine that answers each phrase by a hidden change of it",
            "crops whose yield follows from the order in which the beds are sown",
        ),
    ),
    Skill(
        name="Optimization",
        setting="games",
        description="Meet a bound on cost, time or value by choosing well among moves with side effects.",
        ideas=(
            "loading a ferry trip by trip so that weight, time and pairs of passengers all fit",
            "scheduling jobs on two machines whose speeds show only in use, before a deadline",
            "spreading water over fields whose thirst changes with each day's allotment",
            "a delivery round in which roads become slower the more they are used",
            "spending a budget on wells whose yields fall as they are pumped",
            "planting a garden in which neighbours help or hinder each other",
        ),
    ),
    Skill(
        name="Causal Inference",
        setting="games",
        description="Tell cause from coincidence by changing one thing at a time, and use the cause.",
        ideas=(
            "a greenhouse whose plants wilt from one of several linked settings",
            "levers and lamps with a hidden lamp that lights two others",
            "a village's illness with several suspects and one test a day",
            "a machine that fails only under two conditions together",
            "treating soil where one additive acts only after another",
            "finding which gauge measures and which merely follows another gauge",
        ),
    ),
    Skill(
        name="Strategic Planning",
        setting="games",
        description="Look several moves ahead, against an opponent or under means that run out.",
        ideas=(
            "a race over stepping stones against an opponent with a fixed, observable habit",
            "defending three bridges with few guards against raids that follow a plan",
            "expeditions that must lay out supplies before the long march",
            "taking turns in removing pebbles from heaps, where the opponent errs in one kind of position",
            "an auction of lots that are worth more together",
            "crossing a desert with camels, water and wells that may be dry",
        ),
    ),
    Skill(
        name="Memory Recall",
        setting="games",
        description="Remember what was seen turns ago and use it when it is no longer shown.",
        ideas=(
            "a porter who hands out what guests gave in, in another order, with changes in between",
            "rooms seen once by torch light through which a way must be found in the dark",
            "a market whose stalls move each morning by a rule told on the first day",
            "a conversation at a party after which guests are introduced to each other by what they like",
            "cards turned in pairs, with the deck shifted after each pair",
            "a recipe told step by step and cooked after several disturbances",
        ),
    ),
    Skill(
        name="Language Understanding",
        setting="games",
        description="Understand instructions, references and shades of meaning, and act on what is meant.",
        ideas=(
            "a butler who gets orders full of 'the other one' and 'as yesterday' and may ask one question",
            "repairing a garbled message by choosing which words to have repeated",
            "an invented small language whose words are learnt by pointing, then spoken",
            "mediating between two neighbours who call the same things by different names",
            "sorting notes by what their writers want, not by the words they use",
            "a guide who must describe a place so that a literal-minded visitor finds it",
        ),
    ),
    Skill(
        name="API Orchestration",
        setting="tool_use",
        description="Call several tools in the right order, with results of one as arguments of the next.",
        ideas=(
            "registering a parcel, choosing a carrier by its quote and printing the label",
            "opening a case, attaching evidence to it and assigning the officer on duty",
            "creating an event, reserving what it needs and publishing it only when all is confirmed",
            "moving a patient: find a bed, transfer the file, tell the ward",
        ),
    ),
    Skill(
        name="Data Retrieval",
        setting="tool_use",
        description="Find the records that an instruction describes, by search and filters, and act on them.",
        ideas=(
            "finding the one invoice that two clues single out, and marking it as paid",
            "picking the member with the most visits in a month and granting a bonus",
            "tracing a batch through three stores to block what is left of it",
            "looking up specimens by place and year and moving them to one drawer",
        ),
    ),
    Skill(
        name="State Modification",
        setting="tool_use",
        description="Change records exactly as told, and nothing else.",
        ideas=(
            "re-pricing one product line and leaving its promotions as they are",
            "swapping the shifts of two employees and keeping their rest days",
            "splitting an order into two deliveries with different addresses",
            "merging duplicate contacts and keeping the newer number",
        ),
    ),
    Skill(
        name="Error Recovery",
        setting="tool_use",
        description="Read why a call was refused, put right what was missing, and reach the goal after all.",
        ideas=(
            "a transfer that is refused until the day's limit is raised with a reason",
            "a room that turns out to be locked for cleaning, so that another of its size is due",
            "a deployment that fails a check, which names the setting to change",
            "a booking that is refused for a missing document that another desk issues",
        ),
    ),
    Skill(
        name="Tool Selection",
        setting="tool_use",
        description="Choose among tools that look alike the one whose effect is the one wanted.",
        ideas=(
            "cancelling, pausing and closing an account, which differ in what they keep",
            "replacing, exchanging and refunding an article under different conditions",
            "archiving, hiding and deleting documents with different ways back",
            "notifying one person, a team or everyone, once or repeatedly",
        ),
    ),
    Skill(
        name="Multi-Step Workflows",
        setting="tool_use",
        description="Carry a process through its stages, where each opens only after the one before.",
        ideas=(
            "hiring: shortlist, interview, offer, contract",
            "a repair: diagnose, order the part, fit it, test, hand over",
            "a publication: draft, review, correction, release",
            "a harvest: pick, weigh, grade, store, report",
        ),
    ),
)

_BY_NAME = {skill.name: skill for skill in SKILLS}


def skill_named(name: str) -> Skill:
    """The skill of that name.

    Raises:
      ConfigError: there is none; lists those that are known.
    """
    if name not in _BY_NAME:
        raise ConfigError(f"unknown skill {name!r}; known are: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
