"""The sampling engine: continuous batching inside the training process, on its mesh and weights."""

from spade_jax.sampling.engine import Completion, Engine, Session
from spade_jax.sampling.methods import SamplingParams

__all__ = ["Completion", "Engine", "SamplingParams", "Session"]
