"""Config files: what they build, and how what is wrong with one is explained."""

import pathlib

import pytest

from spade_jax import config as config_lib
from spade_jax.errors import ConfigError

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("path", sorted(CHECKOUT.glob("configs/*.py")), ids=lambda path: path.stem)
def test_every_config_of_the_project_survives_being_written_and_read(path):
    config = config_lib.load(str(path))
    assert config_lib.from_dict(config_lib.to_dict(config)) == config


def explanation(folder: pathlib.Path, text: str) -> str:
    path = folder / "given.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        config_lib.load(str(path))
    return str(error.value)


def test_no_file_no_function_and_another_result_are_explained(tmp_path):
    with pytest.raises(ConfigError, match=r"no config file .*nowhere"):
        config_lib.load(str(tmp_path / "nowhere.py"))
    with pytest.raises(ConfigError, match="no config file"):
        config_lib.load(str(tmp_path))
    assert "has no get_config() that returns" in explanation(tmp_path, "x = 1")
    assert "has no get_config() that returns" in explanation(tmp_path, "def get_config(): return {}")


def test_wrong_fields_are_explained_by_file_section_and_nearest_name(tmp_path):
    text = "from spade_jax.config import AgentConfig\ndef get_config(): return AgentConfig({})"
    unknown = explanation(tmp_path, text.format("temprature=1.0"))
    assert "given.py: AgentConfig: unknown config field 'temprature'. Did you mean 'temperature'?" in unknown
    assert "max_turns" in unknown
    both = explanation(tmp_path, text.format("episodes=0, max_turns='many'")).splitlines()
    assert [line.split(": ")[2] for line in both] == ["config field episodes", "config field max_turns"]
