"""The validation ladder: what a design must pass before anyone plays it.

Rungs in order (`spade_jax.types.RUNGS`); those that are switched off are stepped over, and the first that
fails ends the climb and names the rejection:

    extract        the reply has a closed Python fence and, where hints come from designs, a hint
    parse          the text is Python
    static         its tree has a class to play and nothing that cannot work in the sandbox
    held_out       it is not an environment of the held-out set in other words
    novelty        it is no near copy of a remembered program
    load           the source runs and its class constructs, in the sandbox
    play           instances reset and answer some turns within the contract
    replay         the same seeds and actions in a fresh child give the same answers
    ends           episodes end within the turns that the environment states
    criteria       the criteria of a tool-use task can be evaluated and are still to be met
    solution       the environment's own solution wins, and a spoilt one does not
    constant       no constant answer wins too often
    random         nor does a random policy
    answer_hidden  the first observation does not give the answer away
    hint           nor does the hint, and it wins nothing by itself
    judge          a model finds no fault

Passing says that the environment keeps its contract and asks something, not that it is a good one: that
is what regret and the plateau are for. A fault of the sandbox itself is no verdict on the design.

One child serves all rungs from `load` on, a second one the replay. No rung plays more than
`candidate.MAX_TURNS` turns; what those did not show does not reject.
"""

from spade_jax.environments.validation.feedback import feedback
from spade_jax.environments.validation.ladder import validate, validate_hint, validate_source
from spade_jax.environments.validation.text_rungs import judge_objection

__all__ = ["feedback", "judge_objection", "validate", "validate_hint", "validate_source"]
