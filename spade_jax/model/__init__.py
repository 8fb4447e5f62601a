"""The transformer: pure functions over a parameter pytree, and how both lie on a mesh."""
