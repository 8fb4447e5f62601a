"""Environment files in the reference implementation's two contracts, unchanged, played in the sandbox.

The files are in `reference_contract`, each with the habits that its second line names. An agent's replies
to one instance are written down here, with all that the environment says to them.
"""

import dataclasses
from pathlib import Path

import pytest

from spade_jax.errors import EnvironmentFailure
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.extract import action_for_environment
from spade_jax.text.tool_calls import read_action
from tests.scripted import running_sandbox

FOLDER = Path(__file__).parent / "reference_contract"
SEED = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """What was said and what came of it.

    Attributes:
      turns: each reply with the outputs of its calls, a line each, or the observation of its step.
      rewards: of the steps; a turn of calls has none.
      ends: terminated and truncated, of the last step.
      info: the numbers of the last step.
      tools: names.
    """

    max_turns: int | None
    first: str
    turns: list[tuple[str, str]]
    rewards: list[float]
    ends: tuple[bool, bool]
    info: dict[str, float] = dataclasses.field(default_factory=dict)
    tools: list[str] = dataclasses.field(default_factory=list)


WON, OUT_OF_TURNS = (True, False), (False, True)


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


async def play(pool: SandboxPool, name: str, replies: list[str]) -> Episode:
    """An episode in a child of its own, as an agent has it."""
    turns, rewards, ends, info = [], [], (False, False), {}
    async with await pool.open((FOLDER / f"{name}.py").read_text()) as environment:
        first = (await environment.reset(SEED)).observation
        schemas = {tool.name: tool.parameters for tool in environment.tools}
        for reply in replies:
            assert ends == (False, False), f"{name} has ended before {reply}"
            said = read_action(reply, schemas)
            if schemas and said.calls:
                results = [await environment.call_tool(call.name, call.arguments) for call in said.calls]
                turns.append((reply, "\n".join(result.output for result in results)))
                continue
            step = await environment.step(said.action if schemas else action_for_environment(reply))
            turns.append((reply, step.observation))
            rewards.append(step.reward)
            ends, info = (step.terminated, step.truncated), step.info
    return Episode(
        max_turns=environment.max_turns,
        first=first,
        turns=turns,
        rewards=rewards,
        ends=ends,
        info=info,
        tools=list(schemas),
    )


WINS = {
    "vault_digits": Episode(
        max_turns=8,
        first="Three different digits from 1 to 6, in rising order. Guess as \\boxed{abc}.",
        turns=[
            ("I start with \\boxed{123}.", "2 of them are right. Tried: 123"),
            ("234?", "Please guess as \\boxed{abc}."),
            ("\\boxed{156}", "0 of them are right. Tried: 123, 156"),
            ("<think>\\boxed{123}</think> \\boxed{ 234 }", "The vault opens."),
        ],
        rewards=[0.5, 0.0, 0.0, 1.0],
        ends=WON,
        info={"hits": 3},
    ),
    "beacon_grid": Episode(
        max_turns=6,
        first="You stand at [0, 0]; the beacon is 5 steps away. \\boxed{dx,dy} jumps.",
        turns=[
            ("\\boxed{3,1}", "You stand at [3, 1]; the beacon is 1 steps away. \\boxed{dx,dy} jumps."),
            ("\\boxed{stay}", "You stand at [3, 1]; the beacon is 1 steps away. \\boxed{dx,dy} jumps."),
            ("\\boxed{1,0}", "You stand at [4, 1]; the beacon is 0 steps away. \\boxed{dx,dy} jumps."),
        ],
        rewards=[0.25, 0.25, 1.0],
        ends=WON,
        info={"away": 0, "found": 1},
    ),
    "market_days": Episode(
        max_turns=5,
        first="Market no. 1. Buy cloth with \\boxed{name}.",
        turns=[
            ("\\boxed{gold}", "There is salt, cloth, tin."),
            ("\\boxed{tin}", "You did not need tin."),
            ("\\boxed{Cloth}", "Bought, at 16."),
        ],
        rewards=[0.0, 0.1, 1.0],
        ends=WON,
        info={"entries": 4},
    ),
    "river_locks": Episode(
        max_turns=4,
        first="Three gates: upper, middle, lower. Each opens only after the right one. \\boxed{gate}",
        turns=[
            ("\\boxed{upper}", "The upper gate stays shut."),
            ("\\boxed{lower}", "The lower gate opens."),
            ("\\boxed{upper}", "The upper gate opens."),
            ("\\boxed{middle}", "The middle gate opens. The boat is through."),
        ],
        rewards=[0.0, 0.0, 0.0, 1.0],
        ends=WON,
    ),
    "cipher_wheel": Episode(
        max_turns=10,
        first="What word was 'twhmfwi'? One of harbour, lantern, orchard, compass.",
        turns=[("\\boxed{lantern}", "No."), ("\\boxed{orchard}", "Yes.")],
        rewards=[0.0, 1.0],
        ends=WON,
        info={"right": 1, "share": 0.25},
    ),
    "tide_table": Episode(
        max_turns=6,
        first="Low water 3 m, high water 7 m. The mean? \\boxed{number}",
        turns=[("\\boxed{4}", "Too low."), ("\\boxed{6}", "Too high."), ("\\boxed{5.0}", "Right.")],
        rewards=[0.0, 0.0, 1.0],
        ends=WON,
    ),
    "bank_transfer": Episode(
        max_turns=10,
        first="Move half of the current account to holiday; answer with the new holiday balance.",
        tools=["get_balance", "transfer", "weather"],
        turns=[
            (call("get_balance", '{"account": "current"}'), '{"account": "current", "balance": 6650}'),
            (
                call("transfer", '{"source": "savings", "target": "holiday", "amount": 3325}'),
                "Calling transfer failed: only 1000 in savings",
            ),
            ("<answer>3325</answer>", "Your answer is wrong. Go on with the tools."),
            (
                "<tool_call><function=transfer>\n<parameter=source>\ncurrent\n</parameter>\n"
                "<parameter=target>\nholiday\n</parameter>\n<parameter=amount>\n3325\n</parameter>\n"
                '<parameter=note>\n{"text": "for the sea"}\n</parameter>\n</function></tool_call>',
                '{"ok": true, "note": {"text": "for the sea"}}',
            ),
            ("It is now <answer>$3,325.00</answer>", "Your answer is right."),
        ],
        rewards=[0.0, 1.0],
        ends=WON,
    ),
    "smart_home": Episode(
        max_turns=15,
        first="I am home. Light in the hall, please.",
        tools=["set_light", "set_heating", "lock_door", "play_music"],
        turns=[
            (call("play_music"), "La la la."),
            (
                call("set_light", '{"room": "hall", "mode": "on"}'),
                "The hall light is on.\n[STEP 1 COMPLETE — NEW INSTRUCTION]\nIt is cold: make it 21 degrees.",
            ),
            (
                "<answer>done</answer>",
                "Your answer is wrong. Go on with the tools. Step 2 of 3 is still to do: It is cold: make it"
                " 21 degrees. Do it with the tools before you answer <answer>done</answer>.",
            ),
            (
                call("set_heating", '{"degrees": 21}'),
                "Heating at 21.\n[STEP 2 COMPLETE — NEW INSTRUCTION]\n"
                "Good night. Lock the door and switch the hall light off.",
            ),
            (
                call("lock_door") + call("set_light", '{"room": "hall", "mode": "off"}'),
                "Locked.\nThe hall light is off.\n[ALL STEPS COMPLETE] Reply <answer>done</answer>.",
            ),
            ("<answer>Done</answer>", "Your answer is right."),
        ],
        rewards=[0.0, 1.0],
        ends=WON,
    ),
    "ticket_desk": Episode(
        max_turns=10,
        first="Open a ticket about the printer.",
        tools=["open_ticket", "close_ticket", "read_manual"],
        turns=[
            (call("read_manual"), "Page 1: see page 7."),
            (
                call("close_ticket", '{"subject": "printer", "code": 1}'),
                "Calling close_ticket failed: 'printer'",
            ),
            (
                call("open_ticket", '{"subject": "printer", "urgent": true, "to": {"desk": [4]}}'),
                '{"status": "open", "to": {"desk": [4]}, "urgent": true}'
                " [STEP 1 COMPLETE — NEW INSTRUCTION] Close it with the code of the manual.",
            ),
            (
                call("close_ticket", '{"subject": "printer", "code": 1}')
                + call("read_manual", '{"page": 7}'),
                "Calling close_ticket failed: code 1 is wrong\nThe code is 431.",
            ),
            (
                call("close_ticket", '{"subject": "printer", "code": "431", "why": "mended"}'),
                "closed [ALL STEPS COMPLETE]",
            ),
            ("<answer>done</answer>", "Your answer is right."),
        ],
        rewards=[1.0],
        ends=WON,
    ),
    "archive_search": Episode(
        max_turns=1000,
        first="In which year was the record of Ceta made?",
        tools=["search"],
        turns=[
            (
                call("search", '{"filter": {"town": ["Aland", "Ceta"]}, "limit": 1}'),
                "#1 [{'id': 1, 'town': 'Aland', 'year': 1917}]",
            ),
            (
                call("search", "{}"),
                "#2 Calling search failed: ArchiveSearchEnv.tool_search() missing 1 required"
                " positional argument: 'filter'",
            ),
            (call("find"), "#3 There is no tool 'find'; there are: search"),
            (
                call("search", '{"filter": {"town": ["Ceta"]}}'),
                "#4 [{'id': 3, 'town': 'Ceta', 'year': 1930}]",
            ),
            ("<answer>1930</answer>", "Your answer is right."),
        ],
        rewards=[1.0],
        ends=WON,
    ),
    "courier_routes": Episode(
        max_turns=3,
        first="Drive legs 0 to 3 and answer with the whole length as $x.xx.",
        tools=["drive"],
        turns=[
            ("<answer>$58.00</answer>", "Your answer is wrong. Go on with the tools."),
            (
                "".join(call("drive", f'{{"leg": {leg}}}') for leg in range(4)),
                "{'leg': 0, 'length': 13}\n{'leg': 1, 'length': 7}\n{'leg': 2, 'length': 15}\n"
                "{'leg': 3, 'length': 23}",
            ),
            ("<answer>58</answer>", "Your answer is right."),
        ],
        rewards=[0.0, 1.0],
        ends=WON,
    ),
    "flight_desk": Episode(
        max_turns=10,
        first="Book the best row and answer with its number.",
        tools=["list_rows", "book_row", "book_meal"],
        turns=[
            (call("list_rows"), "[4, 6, 1, 3, 2, 5]"),
            ("<answer>4</answer>", "Your answer is wrong. Go on with the tools."),
            ("Let me think.", "Call a tool, or give your result as <answer>result</answer>."),
            (call("book_row", '{"row": 4}'), "4"),
            ("<answer>4</answer>", "Your answer is right."),
        ],
        rewards=[0.0, -0.1, 1.0],
        ends=WON,
    ),
}

# The limit is the environment's own, and what it shows at the end may be stored under a method's name.
LOSSES = {
    "river_locks": Episode(
        max_turns=4,
        first=WINS["river_locks"].first,
        turns=[
            *[("\\boxed{upper}", "The upper gate stays shut.")] * 3,
            ("up", "The up gate stays shut. Night falls. The order was lower, upper, middle."),
        ],
        rewards=[0.0] * 4,
        ends=OUT_OF_TURNS,
    ),
    "courier_routes": Episode(
        max_turns=3,
        first=WINS["courier_routes"].first,
        tools=["drive"],
        turns=[
            ("Hm.", "Call a tool, or give your result as <answer>result</answer>."),
            ("<answer>58</answer>", "Your answer is wrong. Go on with the tools."),
            (
                "<answer>59</answer>",
                "Your answer is wrong. Go on with the tools.\n\nThat was the last turn. A solution:\n"
                "drive all four legs and answer $58.00",
            ),
        ],
        rewards=[-0.1, 0.0, 0.0],
        ends=OUT_OF_TURNS,
    ),
}

# With us a fault of the environment is never the agent's loss: it ends the episode, which counts nowhere.
FAULTS = [
    ("tide_table", ["\\boxed{4}", "\\boxed{high}"], "ValueError"),
    ("cold_start", [], "KeyError: 'word'"),
]


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as sandbox:
        yield sandbox


def test_every_file_has_a_script():
    scripted = {*WINS, *(name for name, _, _ in FAULTS)}
    assert {path.stem for path in FOLDER.glob("*.py")} == scripted


@pytest.mark.parametrize("name", WINS)
def test_it_is_played_to_a_win(sandbox, name):
    replies = [reply for reply, _ in WINS[name].turns]
    # Twice: nothing of an episode is left in the next one's child.
    for _ in range(2):
        assert sandbox.run(play(sandbox.pool, name, replies)) == WINS[name]


@pytest.mark.parametrize("name", LOSSES)
def test_it_runs_out_of_its_own_turns(sandbox, name):
    replies = [reply for reply, _ in LOSSES[name].turns]
    assert sandbox.run(play(sandbox.pool, name, replies)) == LOSSES[name]


@pytest.mark.parametrize(("name", "replies", "detail"), FAULTS)
def test_what_raises_is_the_environments_fault(sandbox, name, replies, detail):
    with pytest.raises(EnvironmentFailure) as caught:
        sandbox.run(play(sandbox.pool, name, replies))
    assert caught.value.kind == "environment_error"
    assert detail in caught.value.detail


def test_schemas_reach_the_agent_as_they_are(sandbox):
    async def transfer_schema():
        async with await sandbox.pool.open((FOLDER / "bank_transfer.py").read_text()) as environment:
            await environment.reset(SEED)
            return environment.tools[1].parameters

    accounts = {"type": "string", "enum": ["current", "savings", "holiday"]}
    assert sandbox.run(transfer_schema()) == {
        "type": "object",
        "properties": {
            "source": accounts,
            "target": accounts,
            "amount": {"type": "number", "minimum": 0},
            "note": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
        "required": ["source", "target", "amount"],
    }
