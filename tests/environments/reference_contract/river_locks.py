"""Causal Inference | hard"""
# The constructor demands max_turns, reset answers with a bare string, integers stand for rewards.


class RiverLocksEnv:
    def __init__(self, max_turns):
        self.max_turns = min(max_turns, 4)
        self.gates = {}

    def reset(self, seed=None):
        generator = random.Random(seed)
        order = ["upper", "middle", "lower"]
        generator.shuffle(order)
        self.order = order
        self.opened = []
        self.turn_count = 0
        return "Three gates: upper, middle, lower. Each opens only after the right one. \\boxed{gate}"

    def step(self, action):
        self.turn_count += 1
        gate = action.replace("\\boxed{", "").rstrip("}").strip()
        if gate == self.order[len(self.opened)]:
            self.opened.append(gate)
            text = f"The {gate} gate opens."
        else:
            text = f"The {gate} gate stays shut."
        if len(self.opened) == 3:
            return text + " The boat is through.", 1, True, False, {}
        if self.turn_count >= self.max_turns:
            return text + f" Night falls. {self.solution()}", 0, False, True, {}
        return text, 0, False, False, {}

    def solution(self):
        return "The order was " + ", ".join(self.order) + "."
