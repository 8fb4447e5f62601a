"""What is read from an archive is what was written, to the last bit; half a cycle is none."""

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.archive.read import open_archive
from spade_jax.archive.write import ArchiveWriter, discard_from
from spade_jax.errors import ArchiveError
from spade_jax.rl.packing import PackedBatch, pack
from spade_jax.types import (
    Design,
    DesignContext,
    EnvironmentSource,
    TokenStream,
    TrainingSequence,
    Trajectory,
    Turn,
    ValidationReport,
    Verdict,
)


def stream(rng, length, version=3):
    mask = rng.random(length) < 0.5
    if length:
        mask[0] = False
    return TokenStream(
        tokens=rng.integers(0, 150_000, length).astype(np.int32),
        loss_mask=mask,
        behavior_logprobs=np.where(mask, rng.normal(-1, 1, length), 0).astype(np.float32),
        temperature=float(rng.random()),
        weights_version=version,
    )


def cycle_of(seed, lengths=(5, 40, 0, 17, 90, 3)):
    """What a cycle hands to the writer: a design, an episode of two streams, failures, and its batch."""
    rng = np.random.default_rng(seed)
    source = EnvironmentSource(
        environment_id=f"c{seed:05d}-e000", skill="Optimization", code="half \ud83d λ\n" * 20, hint="up"
    )
    verdicts = (Verdict(rung="parse", passed=False, detail="odd"),)
    designs = [
        Design(
            context=DesignContext(environment_id=name, skill="Optimization", document=None),
            reply="a reply",
            stream=stream(rng, 30),
            source=None if index else source,
            report=ValidationReport(environment_id=name, verdicts=verdicts[: 1 if index else 0]),
        )
        for index, name in enumerate([source.environment_id, f"c{seed:05d}-e001"])
    ]
    streams = [stream(rng, length) for length in lengths]
    trajectories = [
        Trajectory(
            environment_id=source.environment_id,
            condition="with_hint" if index % 2 else "without_hint",
            instance_seed=int(rng.integers(2**31)),
            turns=tuple(
                Turn(observation="o", reply="r", reward=float(reward)) for reward in rng.normal(size=index)
            ),
            last_observation="end",
            streams=tuple(streams[index : index + 2]) if index == 0 else (streams[index],),
            episode_return=float(rng.normal()),
            terminated=index != 2,
            truncated=index == 2,
            failure="timeout" if index == 3 else "",
        )
        for index in range(len(streams))
    ]
    waited = stream(rng, 12, version=1)
    trained = [designs[0].stream, waited, *(each for each in streams if each.loss_mask.any())]
    return {
        "environments": [source],
        "designs": designs,
        "trajectories": trajectories,
        "rewards": {source.environment_id: 0.1 + 0.2},
        "sequences": [
            TrainingSequence(
                role="designer" if index < 2 else "agent",
                stream=each,
                advantage=float(rng.normal()),
                weight=float(rng.random()),
            )
            for index, each in enumerate(trained)
        ],
    }


def write(directory, *cycles, **process):
    with ArchiveWriter(directory, **process) as writer:
        for cycle in cycles:
            writer.write(cycle, **cycle_of(cycle))


def same_stream(got, wanted):
    for field in dataclasses.fields(TokenStream):
        one, other = getattr(got, field.name), getattr(wanted, field.name)
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
        else:
            assert (type(one), one) == (type(other), other)


def same_sequences(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        same_stream(one.stream, other.stream)
        assert dataclasses.replace(one, stream=None) == dataclasses.replace(other, stream=None)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), lengths=st.lists(st.integers(0, 60), min_size=2, max_size=8))
def test_everything_comes_back_and_packs_into_the_same_batch(tmp_path_factory, seed, lengths):
    directory = tmp_path_factory.mktemp("archive")
    wanted = cycle_of(seed, lengths)
    with ArchiveWriter(directory) as writer:
        writer.write(7, **wanted)
    archive = open_archive(directory)
    assert list(archive) == [7]
    cycle = archive[7]

    assert cycle.environments == {source.environment_id: source for source in wanted["environments"]}
    assert cycle.rewards == wanted["rewards"]
    for row, trajectory in zip(cycle.episodes, wanted["trajectories"], strict=True):
        assert row.rewards == tuple(turn.reward for turn in trajectory.turns)
        for name in ("environment_id", "condition", "instance_seed", "episode_return", "failure"):
            assert getattr(row, name) == getattr(trajectory, name)
        assert (row.terminated, row.truncated) == (trajectory.terminated, trajectory.truncated)
        for index, each in zip(row.streams, trajectory.streams, strict=True):
            same_stream(cycle.stream(index), each)
    for row, design in zip(cycle.designs, wanted["designs"], strict=True):
        assert (row.environment_id, row.skill) == (design.context.environment_id, design.context.skill)
        assert row.rejected_by == design.report.rejected_by
        same_stream(cycle.stream(row.stream), design.stream)

    sequences = cycle.training_sequences()
    same_sequences(sequences, wanted["sequences"])
    options = {"row_length": 100, "rows_multiple": 2, "pad_id": 0}
    again, first = pack(sequences, **options), pack(wanted["sequences"], **options)
    for field in dataclasses.fields(PackedBatch):
        assert getattr(again, field.name).tobytes() == getattr(first, field.name).tobytes()


def test_a_cycle_with_nothing_in_it(tmp_path):
    nothing = {"environments": [], "designs": [], "trajectories": [], "rewards": {}, "sequences": []}
    with ArchiveWriter(tmp_path) as writer:
        writer.write(0, **nothing)
    cycle = open_archive(tmp_path)[0]
    assert (cycle.episodes, cycle.designs, cycle.training_sequences()) == ([], [], [])


def test_the_shares_of_several_processes_are_one_cycle_in_their_order(tmp_path):
    shares = [cycle_of(seed) for seed in (1, 2, 3)]
    for index, share in enumerate(shares):
        assert list(open_archive(tmp_path)) == []
        with ArchiveWriter(tmp_path, process_index=index, process_count=3) as writer:
            writer.write(4, **share)
    cycle = open_archive(tmp_path)[4]
    same_sequences(
        cycle.training_sequences(), list(itertools.chain(*(share["sequences"] for share in shares)))
    )
    trajectories = list(itertools.chain(*(share["trajectories"] for share in shares)))
    for row, trajectory in zip(cycle.episodes, trajectories, strict=True):
        for index, each in zip(row.streams, trajectory.streams, strict=True):
            same_stream(cycle.stream(index), each)
    assert len(cycle.environments) == len(cycle.rewards) == 3


def test_one_stream_is_read_without_the_rest(tmp_path):
    """What lies in another piece may be gone."""
    rng = np.random.default_rng(0)
    long = [stream(rng, 1 << 16) for _ in range(3)]
    wanted = cycle_of(0, lengths=(4, 5))
    wanted["sequences"] = []
    wanted["designs"] = []
    wanted["trajectories"] = [
        dataclasses.replace(wanted["trajectories"][0], streams=(each,)) for each in long
    ]
    with ArchiveWriter(tmp_path) as writer:
        writer.write(0, **wanted)
    (file,) = (tmp_path / "process_00000_of_00001/cycle_00000/tokens/c").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)
    cycle = open_archive(tmp_path)[0]
    for index in (0, 2):
        same_stream(cycle.stream(index), long[index])
    with pytest.raises(ArchiveError, match=r"cycle_00000 cannot be read: .*Digest mismatch.*Bring the"):
        cycle.stream(1)


def test_any_reader_of_zarr_can_open_the_arrays(tmp_path):
    write(tmp_path, 2)
    folder = tmp_path / "process_00000_of_00001" / "cycle_00002"
    assert json.loads((folder / "zarr.json").read_text())["node_type"] == "group"
    for name in ("tokens", "loss_mask", "behavior_logprobs", "table"):
        about = json.loads((folder / name / "zarr.json").read_text())
        assert (about["zarr_format"], about["node_type"]) == (3, "array")
    tokens = ts.open({"driver": "zarr3", "kvstore": f"file://{folder}/tokens/"}, read=True).result()
    together = np.concatenate([open_archive(tmp_path)[2].stream(index).tokens for index in range(9)])
    assert np.array_equal(tokens.read().result(), together)


def test_a_resumed_run_discards_what_it_makes_again_also_with_fewer_processes(tmp_path):
    for index in range(3):
        write(tmp_path, 1, 2, 3, process_index=index, process_count=3)
    (tmp_path / "process_notes" / "cycle_x").mkdir(parents=True)
    discard_from(tmp_path, 2, process_index=0, process_count=2)
    assert list(open_archive(tmp_path)) == [1]
    discard_from(tmp_path, 2, process_index=1, process_count=2)
    for index in range(2):
        write(tmp_path, 2, process_index=index, process_count=2)
    assert list(open_archive(tmp_path)) == [1, 2]
    same_sequences(open_archive(tmp_path)[2].training_sequences(), 2 * cycle_of(2)["sequences"])
    assert not list(tmp_path.glob("*/cycle_00003"))
    assert (tmp_path / "process_notes" / "cycle_x").exists()


def test_without_an_archive_the_error_says_what_is_wanted(tmp_path):
    with pytest.raises(ArchiveError, match=r"no archive in .*give the archive/ folder"):
        open_archive(tmp_path / "nowhere")


def test_the_error_of_a_write_comes_out_of_the_next_call(tmp_path):
    (tmp_path / "process_00000_of_00001").write_text("in the way")
    with ArchiveWriter(tmp_path) as writer:
        writer.write(0, **cycle_of(0))
        with pytest.raises(ArchiveError, match=r"(?s)cycle_00000 could not be written: .*Free space"):
            writer.wait()
        (tmp_path / "process_00000_of_00001").unlink()
        writer.write(1, **cycle_of(1))
    assert list(open_archive(tmp_path)) == [1]


def test_killed_while_writing_leaves_whole_cycles_only(tmp_path):
    """Each cycle that there is equals what was written, and the same cycle can be written over it."""
    code = (
        f"import runpy; names = runpy.run_path({__file__!r})\n"
        f"names['write']({str(tmp_path)!r}, *range(10_000))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    folder = tmp_path / "process_00000_of_00001"
    while not any(folder.glob("cycle_00005/*")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    archive = open_archive(tmp_path)
    assert len(archive) >= 5
    for number, cycle in archive.items():
        same_sequences(cycle.training_sequences(), cycle_of(number)["sequences"])
    write(tmp_path, len(archive))
    assert list(open_archive(tmp_path)) == list(range(len(archive) + 1))
