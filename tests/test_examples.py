"""The examples for Slurm and Kubernetes: their syntax, what the schedulers require, and that the commands parse."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vitkit.cli.main import parse

yaml = pytest.importorskip("yaml", reason="pip install 'vitkit[dev]'")

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted((EXAMPLES / "slurm").glob("*.sbatch"))
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert {p.name for p in (*SCRIPTS, *MANIFESTS)} >= {"one-node.sbatch", "many-nodes.sbatch", "pytorchjob.yaml"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_bash_can_read_the_script(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_slurm_finds_its_directives_before_the_first_command(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "#!/bin/bash"
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    given = dict(re.fullmatch(r"#SBATCH --([\w-]+)(?:=(.+))?", line).groups() for line in lines if "#SBATCH" in line)  # type: ignore[union-attr]
    assert {"nodes", "gpus-per-node", "time", "signal", "requeue", "open-mode"} <= given.keys()
    assert given.get("ntasks-per-node", given.get("ntasks")) == "1", "one torchrun per machine"
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH")), "Slurm stops reading there"
    command = " ".join(" ".join(lines).replace("\\", "").split())
    assert f"--nproc-per-node {given['gpus-per-node']}" in command


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_what_a_script_starts_vitkit_understands(path: Path) -> None:
    text = path.read_text("utf-8").replace("\\\n", " ")
    found = re.search(r"-m vitkit (.*?) \|\|", text)
    assert found
    words = found[1].replace('"$data"', "DATA").replace('"$run"', "RUN").replace('"$@"', "").split()
    check_train(words)


def check_train(words: list[str]) -> None:
    command = parse(words)
    assert command.resume
    command.resolve()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_a_manifest_has_what_kubernetes_requires(path: Path) -> None:
    job = yaml.safe_load(path.read_text("utf-8"))
    assert job["apiVersion"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    pod = pod_of(job)
    (container,) = pod["containers"]
    assert container["image"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    mounted = {m["name"] for m in container["volumeMounts"]}
    assert mounted == {v["name"] for v in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert container["command"][0] == "torchrun"
    assert container["command"][-2:] == ["-m", "vitkit"]
    assert all(isinstance(word, str) for word in (*container["command"], *container["args"]))
    check_train(container["args"])


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    if job["kind"] == "Job":
        assert job["apiVersion"] == "batch/v1"
        pod = job["spec"]["template"]["spec"]
        assert pod["restartPolicy"] in ("OnFailure", "Never")
        return pod
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    elastic, (replica,) = job["spec"]["elasticPolicy"], job["spec"]["pytorchReplicaSpecs"].items()
    kind, worker = replica
    assert kind == "Worker", "an elastic job has no master"
    assert elastic["minReplicas"] <= worker["replicas"] <= elastic["maxReplicas"]
    assert isinstance(job["spec"]["nprocPerNode"], str)
    assert worker["template"]["spec"]["containers"][0]["name"] == "pytorch"
    for nodes in (2, 4, 8):
        assert 1024 % (nodes * int(job["spec"]["nprocPerNode"])) == 0
    return worker["template"]["spec"]
