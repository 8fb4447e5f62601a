"""What a run writes of its cycles where designs are rewarded in a later one."""

import json

import numpy as np

from spade_jax.cycle import CycleRecord
from spade_jax.train import write_record
from spade_jax.types import Design, DesignContext, TokenStream, ValidationReport
from spade_jax.workdir import Workdir

STREAM = TokenStream(
    tokens=np.zeros(1, np.int32),
    loss_mask=np.ones(1, bool),
    behavior_logprobs=np.zeros(1, np.float32),
    temperature=1.0,
)


def record(cycle, rewards):
    environment_id = f"c{cycle:05d}-e000"
    design = Design(
        context=DesignContext(environment_id=environment_id, skill="Optimization", document=None),
        reply="",
        stream=STREAM,
        source=None,
        report=ValidationReport(environment_id=environment_id, verdicts=()),
    )
    return CycleRecord(
        designs=[design], trajectories=[], estimates={}, rewards=rewards, sequences=[], metrics={}
    )


def test_a_cycle_writes_the_rewards_of_its_own_designs_and_of_earlier_ones(tmp_path):
    with Workdir.open(tmp_path, {"seed": 0}) as workdir:
        write_record(workdir, record(0, {}), 0)
        write_record(workdir, record(1, {"c00000-e000": 0.25, "c00001-e000": -0.5}), 1)
    settled = [
        (about["environment_id"], about["reward"], about["rewarded_in"])
        for path in sorted(tmp_path.glob("environments/*/*.json"))
        for about in [json.loads(path.read_bytes())]
    ]
    assert settled == [("c00000-e000", 0.25, 1), ("c00001-e000", -0.5, 1)]
