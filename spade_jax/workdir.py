"""The folder of a run: what is where in it, and whose it is.

    config.json                         the run's config; another config is refused
    metrics.jsonl, tensorboard/         one row a cycle (spade_jax.metrics)
    environments/cycle_00012/*.py       each environment as the designer wrote it
    environments/cycle_00012/*.json     its validation report, scores, hint and document
    archive/                            all episodes with their tokens (spade_jax.archive)
    episodes/cycle_00012/*.md           some episodes of each environment, for people to read
    checkpoints/                        spade_jax.training.checkpoint
    profiles/cycle_00012/               a trace for the profiler, of cycles that it was asked for
    summary.json                        what the run came to

It may be local or in Google Cloud Storage. One process at a time holds a local workdir; nothing keeps a
second one from a remote one. The files under environments/ and episodes/ are for people:
nothing that a run needs is read back from them. An environment's file says in which cycle its designer
was rewarded, which may be a later one than the folder's, so that a resumed run can take back what it
does again.
"""

import fcntl
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, get_args

import msgspec

from spade_jax.config import Config, differences, from_dict
from spade_jax.errors import ConfigError, WorkdirError
from spade_jax.files import any_path, explain_os_errors, is_remote, remove_folder, write_atomically
from spade_jax.types import Condition, Design, RegretEstimate, Trajectory

_EPISODES_SHOWN = 2
_CYCLE_FOLDER = re.compile(r"cycle_(\d+)")


class Workdir:
    """The files of one run, held until it is closed or the process dies."""

    def __init__(self, path: Path, lock: IO[str] | None):
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: str | Path, config: dict[str, Any], *, allow_changed: bool = False) -> Self:
        """Makes the folder, or takes up the one that a run with this config left.

        Args:
          path: the folder, local or gs://; it and those above it are made.
          config: of this run (`spade_jax.config.to_dict`).
          allow_changed: take up the folder of a run with another config, and write the new one.

        Raises:
          WorkdirError: if it cannot be written, another process holds it, or its config is another.
          StorageError: see `spade_jax.files.any_path`.
        """
        path = any_path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise WorkdirError(
                f"--workdir={path}: a file is in the way of the folder; choose another --workdir"
            ) from None
        except OSError as error:
            raise WorkdirError(
                f"cannot make --workdir={path}: {error.strerror}; choose one that can be written"
            ) from error
        workdir = cls(path, None if is_remote(path) else _take_lock(path))
        try:
            workdir._adopt(config, allow_changed=allow_changed)
        except BaseException:
            workdir.close()
            raise
        return workdir

    def close(self) -> None:
        """Lets another process take the folder."""
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard_dir(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints_dir(self) -> Path:
        return self.path / "checkpoints"

    @property
    def archive_dir(self) -> Path:
        return self.path / "archive"

    @property
    def summary_path(self) -> Path:
        return self.path / "summary.json"

    def environments_dir(self, cycle: int) -> Path:
        return self.path / "environments" / f"cycle_{cycle:05d}"

    def episodes_dir(self, cycle: int) -> Path:
        return self.path / "episodes" / f"cycle_{cycle:05d}"

    def profile_dir(self, cycle: int) -> Path:
        return self.path / "profiles" / f"cycle_{cycle:05d}"

    def discard_from(self, cycle: int) -> None:
        """Removes what a resumed run makes again: environments, episodes and rewards of `cycle` and later."""
        for kind in ("environments", "episodes"):
            for folder in (self.path / kind).glob("cycle_*"):
                match = _CYCLE_FOLDER.fullmatch(folder.name)
                if match and int(match[1]) >= cycle:
                    with explain_os_errors(folder):
                        remove_folder(folder)
        for path in self._environment_files():
            about = _read_about(path)
            rewarded_in = about.get("rewarded_in")
            if rewarded_in is not None and rewarded_in >= cycle:
                write_atomically(path, _json({**about, "reward": None, "rewarded_in": None}))

    def write_environment(
        self,
        design: Design,
        *,
        cycle: int,
        estimate: RegretEstimate | None,
        reward: float | None,
    ) -> None:
        """Writes the source of a design, if there is one, and all that is known of it.

        Args:
          estimate: None where it was not played, or nothing came of it.
          reward: the designer's, None where it has none, or none yet.
        """
        source, report = design.source, design.report
        environment_id = design.context.environment_id
        about = {
            "environment_id": environment_id,
            "cycle": cycle,
            "skill": design.context.skill,
            "document_id": design.context.document.document_id if design.context.document else "",
            "shown": [
                record.source.environment_id
                for record in (*design.context.positives, design.context.negative)
                if record is not None
            ],
            "valid": report.valid,
            "rejected_by": report.rejected_by,
            "host_fault": report.host_fault,
            "verdicts": report.verdicts,
            "reward": reward,
            "rewarded_in": None if reward is None else cycle,
            "estimate": estimate,
            "hint": source.hint if source else None,
            "hint_failure": design.hint_failure,
            "reply": design.reply,
        }
        skill = re.sub(r"[^a-z0-9]+", "_", design.context.skill.lower()).strip("_")
        stem = self.environments_dir(cycle) / f"{environment_id}_{skill}"
        with explain_os_errors(stem):
            stem.parent.mkdir(parents=True, exist_ok=True)
            stem.with_name(f"{stem.name}.json").write_bytes(_json(about))
            if source is not None:
                _write_text(stem.with_name(f"{stem.name}.py"), source.code)

    def write_rewards(self, rewards: Mapping[str, float], *, cycle: int) -> None:
        """Adds rewards that were settled in `cycle` to the files of environments designed before it.

        Args:
          rewards: by environment id; one whose files were taken away is passed over.
        """
        if not rewards:
            return
        for path in self._environment_files():
            environment_id = path.name.partition("_")[0]
            if environment_id in rewards:
                settled = {"reward": rewards[environment_id], "rewarded_in": cycle}
                write_atomically(path, _json({**_read_about(path), **settled}))

    def write_episodes(self, trajectories: Sequence[Trajectory], *, cycle: int) -> None:
        """Writes the first two episodes of each environment and condition as Markdown."""
        by_environment: dict[str, list[Trajectory]] = {}
        for trajectory in trajectories:
            by_environment.setdefault(trajectory.environment_id, []).append(trajectory)
        folder = self.episodes_dir(cycle)
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for environment_id, episodes in by_environment.items():
                sections = [f"# {environment_id}\n"]
                for condition in get_args(Condition):
                    chosen = [item for item in episodes if item.condition == condition]
                    sections += map(_transcript, chosen[:_EPISODES_SHOWN])
                _write_text(folder / f"{environment_id}.md", "\n".join(sections))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes summary.json; numbers that are not finite become null."""
        write_atomically(self.summary_path, _json(summary))

    def _environment_files(self) -> list[Path]:
        return sorted((self.path / "environments").glob("cycle_*/*.json"))

    def _adopt(self, config: dict[str, Any], *, allow_changed: bool) -> None:
        config = json.loads(json.dumps(config))
        if self.config_path.exists():
            try:
                old = json.loads(self.config_path.read_bytes())
            except (OSError, ValueError) as error:
                raise WorkdirError(
                    f"cannot read {self.config_path} ({error}); choose another --workdir"
                ) from error
            changed = differences(old, config)
            if not changed:
                return
            if not allow_changed:
                raise WorkdirError(
                    f"{self.path} belongs to a run with another config:\n  "
                    + "\n  ".join(changed)
                    + "\nChoose another --workdir, or continue that run with the new values by "
                    "--allow_changed_config"
                )
        write_atomically(self.config_path, _json(config))


def read_config(path: Path) -> Config:
    """The config of the run in a folder, whether it is running or not.

    Raises:
      WorkdirError: there is no run, or its config cannot be read.
    """
    file = path / "config.json"
    try:
        return from_dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        raise WorkdirError(f"no run in {path}: {file} is missing; give the workdir of one") from None
    except (OSError, ValueError, ConfigError) as error:
        raise WorkdirError(f"cannot read the run in {path}: {error}") from error


def _read_about(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise WorkdirError(
            f"cannot read {path}, which the run wrote: {error}; remove it to go on without"
        ) from error


def _take_lock(path: Path) -> IO[str]:
    """Locks the folder for this process.

    A POSIX record lock: it goes with the process however that ends, and children made by fork, such
    as the sandbox's, do not keep it.
    """
    with explain_os_errors(path):
        lock = (path / ".lock").open("a+", encoding="utf-8")
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise WorkdirError(
                f"process {holder} is running in {path}; wait for it, stop it, or choose another --workdir"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
    return lock


def _transcript(trajectory: Trajectory) -> str:
    outcome = trajectory.failure or (
        "terminated" if trajectory.terminated else "truncated" if trajectory.truncated else "cut short"
    )
    lines = [
        f"## {trajectory.condition}, instance seed {trajectory.instance_seed}: "
        f"return {trajectory.episode_return:g}, {outcome}\n"
    ]
    for turn in trajectory.turns:
        lines.append(f"Environment:\n\n{_quoted(turn.observation)}\n")
        lines.append(f"Agent:\n\n{_quoted(turn.reply)}\n\nReward {turn.reward:g}\n")
    lines.append(f"Environment, at the end:\n\n{_quoted(trajectory.last_observation)}\n")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """As a Markdown code block by indentation, which no fence inside the text can end."""
    return "\n".join(f"    {line}" for line in text.splitlines() or [""])


def _write_text(path: Path, text: str) -> None:
    # A sampled or generated text may hold half a surrogate pair, which UTF-8 has no bytes for.
    path.write_bytes(text.encode("utf-8", errors="backslashreplace"))


def _json(value: Any) -> bytes:
    """Readable JSON of builtins and dataclasses, null for numbers that are not finite."""
    return json.dumps(_finite(msgspec.to_builtins(value)), indent=2).encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
