"""Parsers of the cluster and container tools: names and marks only, so that start-up stays cheap."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "sacct",
        (r"^\s*(?:JobID|JobIDRaw)\b[^\n]*\b(?:State|Elapsed|ExitCode|MaxRSS)\b", r"^\s*JOBID\s[^\n]*\bST(?:ATE)?\b"),
        "slurm:parse_sacct",
    ),
    Entry(
        "scontrol",
        (r"^\s*JobId=\d+\S*\s", r"^\s*NodeName=\S+\s[^\n]*(?:Arch=|CoresPerSocket=|State=)"),
        "slurm:parse_scontrol",
    ),
    Entry(
        "sinfo",
        (
            r"^REASON\s+[^\n]*NODELIST",
            r"(?:NODELIST|HOSTNAMES)\b[^\n]{0,400}\bSTATE\b",
            r"STATE\b[^\n]{0,400}\bNODELIST\b",
        ),
        "slurm:parse_sinfo",
    ),
    Entry(
        "slurm.conf",
        (
            r"(?i)^\s*(?:NodeName=\S+\s+)?(?:AutoDetect=\S+\s+)?Name=gpu\b",
            r"(?i)^\s*NodeName=\S+[^\n]*\bGres=",
            r"(?i)^\s*(?:GresTypes|SelectType|ConstrainDevices|ConstrainRAMSpace|TaskPlugin|AutoDetect)\s*=",
        ),
        "slurm:parse_slurm_conf",
    ),
    Entry("sbatch", (r"^\s*#SBATCH\s", r"\b(?:srun|sbatch|salloc)\s+-"), "slurm:parse_sbatch"),
    Entry(
        "kubectl describe",
        (
            r"^Name:\s+\S+\s*$",
            r"^(?:Capacity|Allocatable|Allocated resources|Containers):\s*$",
            r"^\s+(?:Normal|Warning)\s+[A-Z]\w+\s+\S",
        ),
        "kubernetes_text:parse_describe",
    ),
    Entry(
        "kubectl get",
        (
            r"^(?:NAMESPACE\s+)?NAME\s[^\n]*\b(?:READY|STATUS)\b",
            r"^NAME\s[^\n]*GPU",
            r"(?:Normal|Warning)\s+[A-Z]\w+\s+(?:pod|node|job|deployment)\S*/\S+",
        ),
        "kubernetes_text:parse_get",
    ),
    Entry(
        "kubernetes objects",
        (
            (
                r"^\s*[\"']?kind[\"']?\s*:\s*[\"']?(?:Pod|Node|Event|List|PodList|NodeList|EventList|Deployment|"
                r"DaemonSet|StatefulSet|Job|CronJob|ReplicaSet|ResourceQuota|PyTorchJob|MPIJob|TFJob|RayJob|RayCluster|"
                r"LeaderWorkerSet)\b"
            ),
            r"\"kind\"\s*:\s*\"(?:Pod|Node|Event|List|PodList|NodeList|EventList|Job|ResourceQuota)\"",
        ),
        "kubernetes_objects:parse_objects",
    ),
    Entry("docker inspect", (r"\"(?:OOMKilled|ShmSize|IpcMode)\"\s*:",), "containers:parse_inspect"),
    Entry(
        "docker run",
        (r"(?:docker|podman|nerdctl)\s+(?:container\s+)?(?:run|create)\s+\S",),
        "containers:parse_run_lines",
    ),
    Entry(
        "docker ps",
        (
            r"^[0-9a-f]{12}\s[^\n]*\b(?:Up|Exited|Restarting|Created)\b",
            r"^[0-9a-f]{13}\s[^\n]*ago\s+(?:Running|Exited|Created)",
        ),
        "containers:parse_container_list",
    ),
    Entry("docker info", (r"^\s*(?:Default Runtime|Runtimes|Cgroup Driver):\s",), "containers:parse_docker_info"),
    Entry(
        "container runtime settings",
        (
            r"^\s*default_runtime_name\s*=",
            r"\.containerd\.runtimes\.",
            r"\"default-runtime\"\s*:",
            r"\"runtimes\"\s*:\s*\{",
            r"native\.cgroupdriver=",
            r"\"default-shm-size\"",
            r"no-cgroups\s*=",
        ),
        "containers:parse_runtime_config",
    ),
    Entry("compose file", (r"^services:\s*$",), "containers:parse_compose"),
)
