import dataclasses
import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import Config, ModelConfig, differences, from_dict, load, to_dict, with_overrides
from spade_jax.errors import ConfigError

CONFIG = Config(
    num_cycles=3,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
)
CONFIGS = sorted((pathlib.Path(__file__).resolve().parents[1] / "configs").glob("*.py"))


def leaves(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def lookup(config, path):
    for name in path.split("."):
        config = getattr(config, name)
    return config


FIELDS = dict(leaves(to_dict(CONFIG)))


def test_dict_there_and_back_through_json():
    assert from_dict(json.loads(json.dumps(to_dict(CONFIG)))) == CONFIG


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_config_file_loads_and_survives_json(path):
    config = load(str(path))
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@given(st.sampled_from(sorted(FIELDS)))
def test_any_field_set_to_its_own_value_changes_nothing(path):
    assert with_overrides(CONFIG, [f"{path}={json.dumps(FIELDS[path])}"]) == CONFIG


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("agent.temperature=0.7", "agent.temperature", 0.7),
        ("agent.temperature=2", "agent.temperature", 2.0),
        ("num_cycles=12", "num_cycles", 12),
        ("designer.train=false", "designer.train", False),
        ("reward.kind=plateau", "reward.kind", "plateau"),
        ('designer.skills=["Optimization"]', "designer.skills", ("Optimization",)),
        ("corpus.path=data/a=b.jsonl", "corpus.path", "data/a=b.jsonl"),
        ("corpus.path=", "corpus.path", ""),
        ("mesh.data=-1", "mesh.data", -1),
    ],
)
def test_an_override_sets_its_field_and_no_other(override, path, value):
    changed = with_overrides(CONFIG, [override])
    assert lookup(changed, path) == value
    assert type(lookup(changed, path)) is type(value)
    lines = differences(to_dict(CONFIG), to_dict(changed))
    assert [line.partition(":")[0] for line in lines] in ([path], [])


def test_later_overrides_win():
    assert with_overrides(CONFIG, ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("agent.temprature=1", ["'agent.temprature'", "Did you mean 'temperature'?", "max_turns"]),
        ("agnt.temperature=1", ["'agnt'", "Did you mean 'agent'?", "designer"]),
        ("num_cycle=1", ["'num_cycle'", "Did you mean 'num_cycles'?"]),
        ("agent=3", ["agent is a section", "temperature"]),
        ("seed.value=3", ["seed is a field", "--set=seed=value"]),
        ("agent.temperature", ["no value", "--set=section.field=value"]),
        ("agent.temperature=warm", ["agent.temperature", "'warm'"]),
        ("agent.temperature=0", ["agent.temperature", "greater than 0"]),
        ("designer.rejected_reward=NaN", ["designer.rejected_reward", "finite"]),
        ("update.learning_rate=Infinity", ["update.learning_rate", "finite"]),
        ("agent.episodes=2.5", ["agent.episodes", "2.5"]),
        ("agent.episodes=true", ["agent.episodes"]),
        ("designer.train=1", ["designer.train"]),
        ("reward.kind=fame", ["reward.kind", "'fame'", "'plateau'"]),
        ("seed=-1", ["seed", "greater than or equal to 0"]),
        ("memory.max_win_rate=1.5", ["memory.max_win_rate", "less than or equal to 1"]),
        ("tokenizer.vocab_size=10", ["tokenizer.vocab_size", "320"]),
        ("checkpoint.keep=1", ["checkpoint.keep", "2"]),
        ("checkpoint.keep_every=7", ["checkpoint.keep_every=7", "multiple of checkpoint.every=5"]),
        ("reward.fast_rate=0.5", ["reward.fast_rate=0.5", "above reward.slow_rate=0.85"]),
        ("agent.loss=clipped", ["agent.loss is a section", "kl_coefficient"]),
        ("agent.loss.kind=ppo", ["agent.loss.kind", "'ppo'", "'clipped'"]),
        ("agent.loss.clip_hi=1", ["'agent.loss.clip_hi'", "Did you mean 'clip_high'?"]),
        ("designer.loss.min_ratio=3", ["designer.loss.min_ratio=3.0", "below designer.loss.max_ratio=2.0"]),
        ('validation.rungs=["play", "replays"]', ["validation.rungs.1", "'replays'", "answer_hidden"]),
    ],
)
def test_a_bad_override_is_an_error_that_names_field_and_remedy(override, parts):
    with pytest.raises(ConfigError) as caught:
        with_overrides(CONFIG, [override])
    for part in parts:
        assert part in str(caught.value)


def test_the_lower_bound_of_the_regret_needs_the_plays_that_its_error_is_of():
    config = with_overrides(CONFIG, ["reward.kind=regret_lower_bound"])
    with pytest.raises(ConfigError, match=r"needs reward\.regret_plays=first"):
        with_overrides(config, ["reward.regret_plays=window"])


def test_a_missing_field_is_named():
    values = to_dict(CONFIG)
    del values["num_cycles"], values["model"]["width"]
    with pytest.raises(ConfigError) as caught:
        from_dict(values)
    assert "num_cycles" in str(caught.value)
    assert "model.width" in str(caught.value)


@pytest.mark.parametrize("field", ["seed", "agent"])
def test_a_config_is_frozen(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(CONFIG, field, 1)


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.one_of(st.integers(0, 2), st.dictionaries(st.sampled_from("xy"), st.integers(0, 2))),
    )
)
def test_nothing_differs_from_itself(values):
    assert differences(values, values) == []


def test_differences_name_each_field_once_with_both_values():
    old = {"a": 1, "b": {"x": 1, "y": 2}, "gone": 0}
    new = {"a": 1, "b": {"x": 3, "y": 2}, "new": "n"}
    assert differences(old, new) == ["b.x: 1 -> 3", "gone: 0 -> None", "new: None -> 'n'"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "no config file"),
        ("x = 1", "no get_config"),
        ("def get_config(): return 3", "no get_config"),
        (
            "from spade_jax.config import *\ndef get_config(): return AgentConfig(epsodes=3)",
            "Did you mean 'episodes'",
        ),
    ],
)
def test_a_config_file_that_gives_no_config_is_explained(tmp_path, source, message):
    path = tmp_path / "config.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(ConfigError, match=message):
        load(str(path))
