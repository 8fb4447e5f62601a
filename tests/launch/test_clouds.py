"""The scripts for clusters, on stand-ins for gcloud, xpk, kubectl and SLURM's commands.

What would run on another machine runs in a folder here: the stand-in for ssh runs its command there, and
there the script sets up, starts and watches a stand-in for training.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = shlex.quote(sys.executable)

# A Python that makes "virtual environments" of itself, installs nothing and trains nothing: it takes the
# next line of $CLOUD/endings as its exit code, or waits to be told to stop, or is killed.
TRAINING_PYTHON = f"""#!/bin/bash
case "$*" in
  -c* | --version) exec {PYTHON} "$@" ;;
  "-m venv"*) mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
  *launch/train.py*)
    {{ printf 'train|'; printf '%s|' "$PWD" "${{JAX_LOCAL_DEVICE_IDS-}}" "${{@:2}}"; echo; }} >>"$CLOUD/calls"
    ending=$(sed -n '1p' "$CLOUD/endings")
    sed -i '1d' "$CLOUD/endings"
    echo "training ends with $ending"
    case $ending in
      killed) kill -KILL $$ ;;
      stop) trap 'exit 130' TERM; while :; do /bin/sleep 0.05; done ;;
      *) exit "$ending" ;;
    esac ;;
esac
"""

RECORD = """{ printf '%s|' "${0##*/}" "$@"; echo; } >>"$CLOUD/calls"\n"""

# Answers with the next line of a file, the last one again and again.
NEXT = (
    """next() { sed -n '1p' "$CLOUD/$1"; [[ $(wc -l <"$CLOUD/$1") == 1 ]] || sed -i '1d' "$CLOUD/$1"; }\n"""
)

GCLOUD = """
case "$*" in
  *"queued-resources list"*) next requests ;;
  *"queued-resources delete"*) rm -rf "$CLOUD"/host* ;;
  *"tpu-vm list"*) echo READY ;;
  *"tpu-vm scp"*) for host in 0 1; do mkdir -p "$CLOUD/host$host"; cp "$5" "$CLOUD/host$host/${6#*:}"; done ;;
  *"tpu-vm ssh"*)
    [[ "$*" != *"${LOST:-nothing}"* || -e $CLOUD/found ]] || { touch "$CLOUD/lost"; exit 1; }
    for argument in "$@"; do
      case $argument in --worker=all) hosts='0 1' ;; --worker=*) hosts=${argument#*=} ;;
        --command=*) command=${argument#*=} ;;
      esac
    done
    for host in $hosts; do (cd "$CLOUD/host$host" && HOME=$PWD bash -c "$command") || exit; done ;;
esac
"""


@pytest.fixture
def cloud(tmp_path):
    """A folder for the other machines, with the stand-ins in bin/ and nothing recorded yet."""
    cloud = tmp_path / "cloud"
    programs = {
        "python3.11": TRAINING_PYTHON,
        "python3.12": TRAINING_PYTHON,
        "sleep": "#!/bin/bash\nexec /bin/sleep 0.02\n",
        "gcloud": f"#!/bin/bash\n{RECORD}{NEXT}{GCLOUD}",
        "xpk": f'#!/bin/bash\n{RECORD}for a; do [[ $a != --script-dir=* ]] || ls -A "${{a#*=}}" '
        '>"$CLOUD/image"; done\n',
        "kubectl": f"#!/bin/bash\n{RECORD}{NEXT}[[ $1 != get ]] || next jobset\n",
        "squeue": "#!/bin/bash\n",
        "srun": f'#!/bin/bash\n{RECORD}exec "${{@:2}}"\n',
        "scontrol": f'#!/bin/bash\n{RECORD}[[ $1 != show ]] || echo "Id=42 JobState=$(cat $CLOUD/state)"\n',
        "sbatch": f"#!/bin/bash\n{RECORD}{NEXT}shift\n"
        "while [[ $1 == -* ]]; do [[ $1 != --output=* ]] || log=${1#*=}; shift; done\n"
        'SLURM_JOB_ID=42 SLURM_GPUS_ON_NODE=3 bash "$@" >"${log/\\%j/42}" 2>&1\n'
        'echo "42;cluster"\n',
    }
    for name, text in programs.items():
        path = cloud / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (cloud / "calls").touch()
    return cloud


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a path with a space, with things in it that are not to travel."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(CHECKOUT / "launch", checkout / "launch")
    shutil.copy(CHECKOUT / "setup.py", checkout)
    for made in ("runs/first", ".git/objects", ".mypy_cache/x"):
        (checkout / made).mkdir(parents=True)
    return checkout


def environment(cloud: pathlib.Path, **extra: str) -> dict[str, str]:
    return {"PATH": f"{cloud / 'bin'}:{os.defpath}", "CLOUD": str(cloud), "HOME": str(cloud), **extra}


def run(command: list, cloud: pathlib.Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", *command],
        cwd=cloud,
        env=environment(cloud, **extra),
        text=True,
        capture_output=True,
        timeout=120,
    )


def calls(cloud: pathlib.Path, of: str) -> list[list[str]]:
    """The arguments of each recorded call of a program."""
    lines = (cloud / "calls").read_text().splitlines()
    return [line.split("|")[1:-1] for line in lines if line.startswith(f"{of}|")]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


FLAGS = ["--config=configs/tiny_games.py", "--workdir=/shared/my run"]


def node(checkout: pathlib.Path, *arguments: str) -> list:
    return [checkout / "launch/node.sh", *arguments]


@pytest.mark.parametrize(
    ("endings", "code"),
    [
        (["0"], 0),
        (["1"], 1),  # an error that training names
        (["130"], 130),  # it was asked to stop
        (["killed", "134", "0"], 0),  # another host died, in jax's words
        (["killed"] * 7, 137),
    ],
)
def test_a_node_starts_training_again_when_it_was_killed_and_exits_as_it_ends(cloud, checkout, endings, code):
    (cloud / "endings").write_text("\n".join(endings) + "\n")
    ended = run(node(checkout, "run", *FLAGS), cloud)
    assert ended.returncode == code, ended.stderr
    trainings = calls(cloud, "train")
    assert [flags for _, _, *flags in trainings] == [FLAGS] * min(len(endings), 6)
    for number, ending in enumerate(endings[:6]):
        assert ended.stdout.count(f"training ends with {ending}\n") >= 1, number
    assert run(node(checkout, "exit_code"), cloud).stdout == f"{code}\n"


def test_a_node_trains_on_while_nobody_looks_and_stops_when_it_is_asked(cloud, checkout):
    (cloud / "endings").write_text("stop\n")
    assert run(node(checkout, "--extra=", "start", *FLAGS), cloud).returncode == 0
    assert "running already" in run(node(checkout, "start", *FLAGS), cloud).stderr
    assert run(node(checkout, "exit_code"), cloud).stdout == ""
    wait_until(lambda: calls(cloud, "train"))
    time.sleep(0.2)  # until it listens
    assert run(node(checkout, "stop"), cloud).returncode == 0
    ended = run(node(checkout, "logs"), cloud)
    assert ended.returncode == 130, ended.stderr
    assert len(calls(cloud, "train")) == 1
    assert "not running" in run(node(checkout, "stop"), cloud).stderr


def tpu_pod(checkout: pathlib.Path, *arguments: str) -> list:
    return [
        checkout / "launch/tpu_pod.sh",
        *("--name=pod", "--zone=us-west4-a", "--accelerator=v5litepod-16", "--spot"),
        *arguments,
    ]


def verbs(cloud: pathlib.Path) -> list[str]:
    """What was asked of gcloud, but for looks at the state."""
    names = [
        " ".join(call[2:4]).removeprefix("tpu-vm ").removeprefix("queued-resources ")
        for call in calls(cloud, "gcloud")
    ]
    return [name for name in names if name != "list"]


def test_a_slice_is_asked_for_set_up_and_watched_until_training_ends(cloud, checkout):
    (cloud / "requests").write_text("\nWAITING_FOR_RESOURCES\nPROVISIONING\nACTIVE\n")
    (cloud / "endings").write_text("0\n0\n")
    ended = run(tpu_pod(checkout, "run", *FLAGS), cloud)
    assert ended.returncode == 0, ended.stderr
    assert "training ends with 0" in ended.stdout
    assert verbs(cloud) == ["create", "scp", "ssh", "ssh", "ssh", "ssh"]
    (created,) = [call for call in calls(cloud, "gcloud") if "create" in call]
    assert created[4:] == [
        *("pod", "--zone=us-west4-a", "--node-id=pod", "--accelerator-type=v5litepod-16"),
        *("--runtime-version=v2-alpha-tpuv5-lite", "--spot"),
    ]
    wait_until(lambda: len(calls(cloud, "train")) == 2)  # the script waits for the first host alone
    assert [flags for _, _, *flags in calls(cloud, "train")] == [FLAGS, FLAGS]
    for host in ("host0", "host1"):
        there = {path.name for path in (cloud / host / "spade_jax").iterdir()}
        assert there == {"launch", "setup.py", ".venv", "runs"}
        assert not (cloud / host / "spade_jax/runs/first").exists()


def test_a_preempted_slice_is_given_back_and_asked_for_again_and_training_goes_on(cloud, checkout):
    (cloud / "requests").write_text("ACTIVE\nSUSPENDING\nSUSPENDED\n\nACTIVE\n")
    (cloud / "endings").write_text("0\n" * 4)
    # Both looks at host 0 fail as long as the slice is the first one.
    gcloud = cloud / "bin/gcloud"
    gcloud.write_text(
        gcloud.read_text().replace('rm -rf "$CLOUD"/host*', 'rm -rf "$CLOUD"/host*; touch "$CLOUD/found"')
    )
    ended = run(tpu_pod(checkout, "run", *FLAGS), cloud, LOST="--worker=0")
    assert ended.returncode == 0, ended.stderr
    assert (cloud / "lost").exists()
    assert verbs(cloud) == [
        *("scp", "ssh", "ssh", "ssh", "ssh"),
        *("delete", "create"),
        *("scp", "ssh", "ssh", "ssh", "ssh"),
    ]
    assert "pod was preempted" in ended.stderr
    # On the first slice there may have been no time for it.
    assert [flags for _, _, *flags in calls(cloud, "train")][-2:] == [FLAGS] * 2


def test_an_error_of_training_is_the_end_on_a_slice_too(cloud, checkout):
    (cloud / "requests").write_text("ACTIVE\n")
    (cloud / "endings").write_text("1\n1\n")
    assert run(tpu_pod(checkout, "run", *FLAGS), cloud).returncode == 1
    assert verbs(cloud) == ["scp", "ssh", "ssh", "ssh", "ssh"]


def test_what_gcloud_refuses_is_an_error(cloud, checkout):
    (cloud / "bin/gcloud").write_text("#!/bin/bash\necho 'log in first' >&2\nexit 1\n")
    ended = run(tpu_pod(checkout, "run", *FLAGS), cloud)
    assert ended.returncode == 1
    assert ended.stderr == "log in first\n"


def gke(checkout: pathlib.Path, *arguments: str) -> list:
    options = ("--cluster=c", "--zone=us-central2-b", "--workload=first", "--tpu_type=v5litepod-16")
    return [checkout / "launch/gke.sh", *options, *arguments]


@pytest.mark.parametrize(("ended_as", "code"), [("Completed", 0), ("Failed", 1)])
def test_a_workload_is_submitted_with_the_checkout_and_followed_across_restarts(
    cloud, checkout, ended_as, code
):
    (cloud / "jobset").write_text(f"\n\n{ended_as}\n")
    assert run(gke(checkout, "run", *FLAGS), cloud).returncode == code
    (create,) = calls(cloud, "xpk")
    assert create[:2] == ["workload", "create"]
    assert {"--max-restarts=20", "--num-slices=1", "--tpu-type=v5litepod-16"} <= set(create)
    (command,) = [item.removeprefix("--command=") for item in create if item.startswith("--command=")]
    assert shlex.split(command) == ["exec", "bash", "launch/_worker.sh", "tpu", *FLAGS]
    assert (cloud / "image").read_text().split() == ["launch", "setup.py"]
    assert [call[0] for call in calls(cloud, "kubectl")] == ["logs", "get"] * 3


@pytest.mark.parametrize(
    ("ending", "restarts", "requeued"),
    [("0", "0", False), ("1", "0", False), ("130", "9", True), ("killed", "0", True), ("killed", "5", False)],
)
def test_a_slurm_job_is_queued_again_where_going_on_makes_sense(cloud, checkout, ending, restarts, requeued):
    (cloud / "endings").write_text(f"{ending}\n")
    (cloud / "state").write_text("COMPLETED" if ending == "0" else "FAILED")
    command = [checkout / "launch/slurm.sh", "--nodes=2", "--gpus-per-node=3", "--", *FLAGS]
    ended = run(command, cloud, SLURM_RESTART_COUNT=restarts)
    assert ended.returncode == (0 if ending == "0" else 1), ended.stderr
    assert f"training ends with {ending}" in ended.stdout
    (submitted,) = calls(cloud, "sbatch")
    assert submitted[2:4] == ["--nodes=2", "--gpus-per-node=3"]
    ((_, devices, *flags),) = calls(cloud, "train")
    assert (devices, flags) == ("0,1,2", FLAGS)
    assert (["requeue", "42"] in calls(cloud, "scontrol")) == requeued


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        (node, ["prepare_environment", "bash", "tail"]),
        (tpu_pod, ["gcloud"] * 6),
        (gke, ["xpk", "gcloud", "kubectl"]),
    ],
)
def test_a_dry_run_prints_what_would_run_and_runs_nothing(cloud, checkout, command, programs):
    ended = run(command(checkout, "--dry_run", "run", *FLAGS), cloud)
    assert ended.returncode == 0, ended.stderr
    lines = [shlex.split(line) for line in bash_lines(ended.stdout)]
    assert [line[0] for line in lines] == programs
    assert any(FLAGS[0] in argument for line in lines for argument in line)
    assert (cloud / "calls").read_text() == ""


def test_a_dry_run_of_a_slurm_job_submits_nothing(cloud, checkout):
    ended = run([checkout / "launch/slurm.sh", "--dry_run", "--nodes=2", "--", *FLAGS], cloud)
    assert [shlex.split(line)[0] for line in ended.stdout.splitlines()] == ["prepare_environment", "sbatch"]
    assert (cloud / "calls").read_text() == ""


def bash_lines(text: str) -> list[str]:
    """Lines of commands, with bash's quoting of a line break in an argument, $'...', as a plain one."""
    return [line.replace("$'", "'") for line in text.splitlines()]


@pytest.mark.parametrize("name", ["node", "tpu_pod", "gke", "slurm"])
def test_help_is_the_comment_and_a_wrong_option_an_error(cloud, checkout, name):
    script = checkout / f"launch/{name}.sh"
    helped = run([script, "--help"], cloud)
    assert helped.returncode == 0
    assert f"bash launch/{name}.sh" in helped.stdout
    assert "set -e" not in helped.stdout
    wrong = run([script, "--surprise"], cloud)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: ")
