import random

import pytest

from spade_jax.text.tokenizer import Tokenizer

NOUNS = ("fig", "kite", "ring", "bee", "lamp")

PROGRAM = """\
```python
import random

class WalkEnv:
    size = {size}
    name = "{noun}"
    def reset(self, seed=None):
        self.turn_count = 0
        return self.view(), {{}}
    def string(self):
        return f"{{self.name}}"
```
Hint: step towards the goal"""


@pytest.fixture(scope="session")
def texts() -> list[str]:
    rng = random.Random(0)
    programs = [PROGRAM.format(noun=rng.choice(NOUNS), size=rng.randrange(10)) for _ in range(200)]
    scenes = [f"The {rng.choice(NOUNS)} had been near the {rng.choice(NOUNS)}.\n" for _ in range(200)]
    moves = [f"\\boxed{{{rng.choice(('up', 'down', *NOUNS))}}}" for _ in range(200)]
    return programs + scenes + moves


@pytest.fixture(scope="session")
def tokenizer(texts: list[str]) -> Tokenizer:
    return Tokenizer.train(texts, vocab_size=512, atoms=[*NOUNS, "\\boxed{"])
