"""What any set of environments is worth, before anything is trained on it.

    folder or JSONL -> entries -> (sandbox) verdict, measures -> (a run's policy) plays -> table, JSON, CSV

Without a policy nothing here touches jax. Nothing that an environment says is trusted, and nothing of it
runs outside the sandbox.
"""
