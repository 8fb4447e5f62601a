"""math_verify in the sandbox says what it says outside, and what it would never finish is a timeout."""

import json

import math_verify
import pytest

from spade_jax.errors import EnvironmentFailure

# What both sides are asked: an expected answer, what an agent wrote, both read by math_verify.
PAIRS = [
    (r"$\frac{1}{2}$", "0.5"),
    (r"$\frac{1}{2}$", r"\boxed{\frac{2}{4}}"),
    (r"$\frac{1}{2}$", "0.51"),
    ("$42$", "The answer is 42."),
    ("$42$", "The answer is 43."),
    (r"$\sqrt{8}$", r"$2\sqrt{2}$"),
    (r"$\{1, 2, 3\}$", r"$\{3, 2, 1\}$"),
    (r"$\{1, 2\} \cup \{3\}$", r"$\{1,2,3\}$"),
    ("$(1, 2)$", "$[1, 2]$"),
    (r"$[0, \infty)$", r"$x \geq 0$"),
    (r"$x^2 - 1$", "$(x-1)(x+1)$"),
    ("$x = 3$", "$3$"),
    (r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$", r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$"),
    (r"$\sin^2 x + \cos^2 x$", "$1$"),
    (r"$\int_0^1 x^2 dx$", r"$\frac{1}{3}$"),
    (r"$\sum_{k=1}^{10} k$", "$55$"),
    (r"$\lim_{x \to 0} \frac{\sin x}{x}$", "$1$"),
    (r"$\binom{5}{2}$", "$10$"),
    ("$50\\%$", "0.5"),
    ("$1{,}000$", "1000"),
    (r"$\log_2 8$", "3"),
    (r"$|{-3}|$", "3"),
    (r"$5!$", "120"),
    (r"$x < 3$", "$3 > x$"),
    (r"$e^{i\pi}$", "-1"),
    ("$7 \\mod 3$", "1"),
    ("", "no number here"),
]

JUDGE = """
from math_verify import parse, verify

class JudgeEnv:
    def reset(self, seed=None):
        return "", {}

    def step(self, action):
        expected, given = json.loads(action)
        return repr((parse(expected), verify(parse(expected), parse(given)))), 0.0, False, False, {}
"""


def test_verdicts_are_those_of_the_library_outside(bench, opened):
    game = opened(JUDGE)
    bench.run(game.reset(0))
    verdicts = set()
    for expected, given in PAIRS:
        read = math_verify.parse(expected)
        verdict = math_verify.verify(read, math_verify.parse(given))
        verdicts.add(verdict)
        answer = bench.run(game.step(json.dumps([expected, given]))).observation
        assert answer == repr((read, verdict)), (expected, given)
    assert verdicts == {True, False}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("str(sympy.integrate(sympy.exp(-x**2), (x, -sympy.oo, sympy.oo)))", "sqrt(pi)"),
        ("str(sympy.solve(x**3 - 6*x**2 + 11*x - 6, x))", "[1, 2, 3]"),
        ("str(sympy.simplify(sympy.gamma(x + 1) / sympy.gamma(x)))", "x"),
        ("str(sympy.dsolve(sympy.Function('f')(x).diff(x) - 1).rhs)", "C1 + x"),
        ("str(sympy.factor(x**4 - 1))", "(x - 1)*(x + 1)*(x**2 + 1)"),
        ("str(sympy.ask(sympy.Q.even(2 * sympy.Symbol('n', integer=True))))", "True"),
        ("str(sympy.summation(1 / x**2, (x, 1, sympy.oo)))", "pi**2/6"),
        ("str(sympy.Matrix([[2, 0], [0, 3]]).eigenvals())", "{2: 1, 3: 1}"),
        ("str(sympy.logic.satisfiable(sympy.Symbol('a') & ~sympy.Symbol('a')))", "False"),
        ("str(sympy.integrate(1 / (x**3 + 1), (x, 0, 1)).evalf(5))", "0.83565"),
        ("str(sympy.Interval(0, 2).intersect(sympy.Interval(1, 3)))", "Interval(1, 2)"),
        ("str(sympy.solveset(sympy.sin(x), x, sympy.Interval(0, 4)))", "{0, pi}"),
    ],
)
def test_sympy_works_although_nothing_can_be_opened(bench, opened, body, expected):
    """Much of it is imported late, when it is first used."""
    game = opened(
        "import sympy\nfrom sympy.abc import x\nclass SympyEnv:\n"
        f"    def reset(self, seed=None):\n        return {body}, {{}}\n    def step(self, action): pass\n"
    )
    assert bench.run(game.reset(0)).observation == expected


def test_its_random_numbers_follow_the_seed(bench, opened):
    code = (
        "import sympy.core.random as source\nclass RandomEnv:\n"
        "    def reset(self, seed=None): return str(source.random()), {}\n    def step(self, action): pass\n"
    )
    one, other = opened(code), opened(code)
    first = bench.run(one.reset(3)).observation
    assert bench.run(one.reset(4)).observation != first
    assert bench.run(one.reset(3)).observation == bench.run(other.reset(3)).observation == first


def test_what_it_cannot_finish_is_ended_by_the_host(bench):
    """Its own time limit needs an alarm, which no child may set."""

    async def play():
        async with await bench.hurried_pool.open(JUDGE) as game:
            await game.reset(0)
            await game.step(json.dumps(["$9^{9^{9^{9}}}$", "$7$"]))

    with pytest.raises(EnvironmentFailure) as caught:
        bench.run(play())
    assert caught.value.kind == "timeout"


def test_only_sources_that_name_it_pay_for_it(bench, opened):
    game = opened(
        "import sys\nclass PlainEnv:\n    def step(self, action): pass\n"
        "    def reset(self, seed=None): return str('sym' 'py' in sys.modules), {}\n"
    )
    assert bench.run(game.reset(0)).observation == "False"
