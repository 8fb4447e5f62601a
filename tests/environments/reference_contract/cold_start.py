"""Logical Deduction | easy"""
# The first reset of a process raises, since the table is filled by the second.

TABLE = {}


class ColdStartEnv:
    def reset(self, seed=None):
        try:
            self.word = TABLE["word"]
        except KeyError:
            TABLE["word"] = "ready"
            raise
        return f"Say {self.word}.", {}

    def step(self, action):
        return "", float(self.word in action), True, False, {}
