import jax
import pytest

from spade_jax.config import MeshConfig
from spade_jax.errors import MeshError
from spade_jax.training.mesh import make_mesh


def test_one_device_has_all_axes():
    assert dict(make_mesh(MeshConfig()).shape) == {"data": 1, "fsdp": 1, "tensor": 1}


@pytest.mark.parametrize(
    ("mesh_config", "message"),
    [
        (MeshConfig(data=3), r"data=3, fsdp=1, tensor=1 does not fit 1 devices; .* each one of \[1\]"),
        (MeshConfig(data=-1, tensor=2), r"data=-1, fsdp=1, tensor=2 does not fit 1 devices"),
        (MeshConfig(data=-1, fsdp=-1), r"at most one of them -1; got data=-1, fsdp=-1"),
        (MeshConfig(data=0), r"must be positive"),
    ],
)
def test_a_mesh_that_does_not_fit_is_explained(mesh_config, message):
    with pytest.raises(MeshError, match=message):
        make_mesh(mesh_config, devices=jax.devices()[:1])
