"""One error class for each boundary that a run crosses.

An error says what we got, what we wanted and what to do. Failures of generated environments are
not errors of the program: they travel as `EnvironmentFailure`, are counted, and become data.
"""


class SpadeError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(SpadeError):
    """A config has an unknown field, a value of the wrong type or out of range."""


class CorpusError(SpadeError):
    """Grounding documents are missing, empty or unreadable."""


class WorkdirError(SpadeError):
    """A workdir cannot be written, or belongs to a run with another config."""


class AuditError(SpadeError):
    """There is no set of environments to audit, or the results cannot be written."""


class CheckpointError(SpadeError):
    """No usable checkpoint where one is needed, or none could be written."""


class StorageError(SpadeError):
    """A path is in a storage that this installation cannot reach."""


class ArchiveError(SpadeError):
    """Archived episodes cannot be written or read."""


class TokenizerError(SpadeError):
    """A tokenizer model is missing, unreadable or does not fit the text."""


class ContextOverflow(SpadeError):
    """A prompt does not fit the context that the sampler was built for."""


class MeshError(SpadeError):
    """The mesh does not fit the devices, or an axis does not divide the model."""


class DistributedError(SpadeError):
    """The processes of a run cannot find each other, or do not run the same."""


class SandboxUnavailable(SpadeError):
    """The machine cannot isolate environments as strictly as the config demands."""


class EndpointError(SpadeError):
    """A chat endpoint cannot be asked, or gave no answer after all tries."""


class HostFault(SpadeError):
    """The sandbox or the host failed, and the environment did not: masked from every loss."""


class EnvironmentFailure(SpadeError):
    """A generated environment failed at the sandbox boundary.

    Attributes:
      kind: one of `spade_jax.types.FAILURE_KINDS`.
      detail: at most 500 characters, untrusted text from the child or a host-side reason.
    """

    def __init__(self, kind: str, detail: str = ""):
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail
