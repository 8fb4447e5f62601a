import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import LossConfig
from spade_jax.rl.objective import Tokens, token_losses

# One sequence of two trained tokens, one of the other role's, and padding; NaN where nothing may look.
MASK = jnp.array([[True, True, False, False]])
NAN = float("nan")


def tokens(*, reference=True):
    return Tokens(
        policy_logprobs=jnp.array([[-1.0, -2.0, -3.0, NAN]]),
        entropies=jnp.array([[1.2, 0.7, 0.5, NAN]]),
        reference_logprobs=jnp.array([[-1.5, -1.9, -1.0, NAN]]) if reference else None,
        behavior_logprobs=jnp.array([[-1.0, -2.0, -3.0, NAN]]),
        advantages=jnp.array([[2.0, 2.0, 5.0, NAN]]),
        segment_ids=jnp.array([[1, 1, 2, 0]]),
    )


@pytest.mark.parametrize(
    ("fields", "losses", "kl"),
    [
        # -A * policy, with k1 = 0.5 and -0.1, k2 = 0.125 and 0.005.
        ({}, [2, 4], None),
        ({"entropy_coefficient": 0.3}, [2 - 0.36, 4 - 0.21], None),
        ({"kl": "k1", "kl_coefficient": 0.1}, [2.05, 3.99], [0.5, -0.1]),
        ({"kl": "k2", "kl_coefficient": 0.1}, [2.0125, 4.0005], [0.125, 0.005]),
        # The first token's advantage loses 0.1 * (0.5 - 0.1), the second's gains 0.1 * 0.1.
        ({"kl": "reward", "kl_coefficient": 0.1}, [1.96, 4.02], [0.5, -0.1]),
        # The other role has a reference, this one only says how far it is.
        ({"kl": "k2"}, [2, 4], [0.125, 0.005]),
    ],
    ids=str,
)
def test_penalty_and_bonus_by_hand(fields, losses, kl):
    config = LossConfig(kind="reinforce", **fields)
    found = token_losses(tokens(reference=kl is not None), config, loss_mask=MASK)
    np.testing.assert_allclose(found.losses, [[*losses, 0, 0]], rtol=1e-5)
    assert not found.clipped.any()
    if kl is None:
        assert found.kl is None
    else:
        np.testing.assert_allclose(found.kl, [[*kl, 0, 0]], rtol=1e-5)


def test_clipped_surrogate_with_separate_bounds_is_the_default():
    behavior = jnp.array([[-1.3, -1.5, -3.0, NAN]])  # ratios 1.35 and 0.61
    found = token_losses(tokens()._replace(behavior_logprobs=behavior), LossConfig(), loss_mask=MASK)
    np.testing.assert_allclose(found.losses, [[-2 * 1.28, -2 * np.exp(-0.5), 0, 0]], rtol=1e-5)
    np.testing.assert_array_equal(found.clipped, [[True, False, False, False]])
