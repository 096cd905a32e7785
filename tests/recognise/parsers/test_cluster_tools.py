from __future__ import annotations

import json

import pytest
from host_tools import of, one, read, shared

SACCT = """JobID           JobName  Partition    Elapsed  Timelimit      State ExitCode     MaxRSS     ReqMem
------------ ---------- ---------- ---------- ---------- ---------- -------- ---------- ----------
88120        ft-llama        gpu   03:46:35 1-00:00:00 CANCELLED by 1021      0:0                  500G
88120.batch      batch              03:46:36            CANCELLED     0:15     12044K
88121        x               gpu   1-00:00:12 1-00:00:00    TIMEOUT      0:0                 500Gn
88121.0         python              1-00:00:12            OUT_OF_ME+     0:125  524288000K
"""


def test_sacct_table() -> None:
    rows = {row["id"]: row for row in of(SACCT, "job")}
    assert rows["88120"]["cancelled_by"] == 1021
    assert rows["88120"]["time_limit_s"] == 86400
    assert rows["88120"]["req_mem_mib"] == 512000
    assert rows["88120.batch"]["signal"] == 15
    assert rows["88120.batch"]["name"] == "batch"
    assert rows["88121"]["state"] == "TIMEOUT"
    assert rows["88121.0"]["state"] == "OUT_OF_MEMORY"
    assert rows["88121.0"]["base"] == "88121"


def test_sacct_parsable() -> None:
    text = "JobID|JobName|State|ExitCode|DerivedExitCode|Elapsed|NodeList|ReqMem|MaxRSS|AllocTRES\n12_3|t|NODE_FAIL|0:0|0:0|01:00:00|gpu[01-02]|64G||billing=8,cpu=8,gres/gpu:h100=8,gres/gpu=8,mem=64G\n12_3.0|t|FAILED|0:9|0:0|01:00:00|gpu01||65000000K|cpu=8\n"
    rows = {row["id"]: row for row in of(text, "job")}
    assert rows["12_3"]["state"] == "NODE_FAIL"
    assert rows["12_3"]["gpus"] == 8
    assert rows["12_3.0"]["signal"] == 9


def test_squeue_and_scontrol_job() -> None:
    text = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n              2691    normal     task    mahan  R 2-16:46:05      1 eureka\n              2692    normal     task    mahan PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:n3)\n"
    rows = {row["id"]: row for row in of(text, "job")}
    assert rows["2691"]["node"] == "eureka"
    assert rows["2692"]["reason"] == "ReqNodeNotAvail, UnavailableNodes:n3"
    assert rows["2692"]["state"] == "PENDING"
    text = "JobId=4411 JobName=t\n   UserId=bob(1000) GroupId=x(1) MCS_label=N/A\n   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)\n   RunTime=1-00:00:12 TimeLimit=1-00:00:00 TimeMin=N/A\n   NodeList=gpu01\n   ExitCode=0:0\n   TRES=cpu=8,mem=64G,node=1,billing=8,gres/gpu=4\n"
    (fact,) = [fact for fact in read(text) if fact.kind == "job"]
    assert fact.fields["state"] == "TIMEOUT"
    assert fact.fields["time_limit_s"] == 86400
    assert fact.where("state").line == 3


def test_nodes() -> None:
    text = "NodeName=n1 Arch=x86_64 CoresPerSocket=1\n   Gres=gpu:a100:4(S:0)\n   State=IDLE+DRAIN+INVALID_REG ThreadsPerCore=1\n   Reason=gres/gpu count reported lower than configured (3 < 4) [slurm@2024-05-23T12:49:52]\n"
    row = one(text, "node")
    assert row["gpus"] == 4
    assert row["drained"] is True
    assert row["usable"] is False
    assert row["reason"] == "gres/gpu count reported lower than configured (3 < 4)"
    text = "REASON               USER        TIMESTAMP           NODELIST\nKill task failed     root        2024-05-01T10:00:00 gpu07\nNot responding       slurm       2024-05-01T10:00:00 gpu[08-09]\n"
    rows = of(text, "node")
    assert [(row["name"], row["reason"]) for row in rows] == [
        ("gpu07", "Kill task failed"),
        ("gpu[08-09]", "Not responding"),
    ]
    text = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up 1-00:00:00      1  drain gpu07\ngpu*         up 1-00:00:00      1  down* gpu08\ngpu*         up 1-00:00:00      6    mix gpu[01-06]\n"
    rows = {row["name"]: row for row in of(text, "node")}
    assert rows["gpu07"]["drained"] is True
    assert rows["gpu08"]["not_responding"] is True
    assert rows["gpu[01-06]"]["usable"] is True
    text = "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\ngpu07          1      gpu*     drained 64     2:16:2 515000        0      1   (null) Kill task failed\n"
    assert one(text, "node")["reason"] == "Kill task failed"


def test_slurm_conf_and_scripts() -> None:
    rows = of("NodeName=n[1-4] Gres=gpu:h100:8 CPUs=64 State=UNKNOWN\n", "gres")
    assert rows[0]["count"] == 8
    assert rows[0]["where"] == "slurm.conf"
    rows = of("NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-3] Count=8\n", "gres")
    assert rows[0]["count"] == 8
    assert rows[0]["files"] == 4
    rows = {
        row["name"]: row
        for row in of(
            "#!/bin/bash\n#SBATCH --gres=gpu:a100:4\n#SBATCH --mem=64G   # host\n#SBATCH -t 02:00:00\n", "job_request"
        )
    }
    assert rows["gres"]["gpus"] == 4
    assert rows["mem"]["size_mib"] == 65536
    assert rows["time"]["seconds"] == 7200


POD = """Name:             trainer-0
Namespace:        default
Node:             gke-1/10.0.0.1
Status:           Running
Containers:
  main:
    Image:      x/y:1
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 01 Jan 2024 00:00:00 +0000
    Ready:          False
    Restart Count:  7
    Limits:
      memory:          64Gi
      nvidia.com/gpu:  4
    Requests:
      nvidia.com/gpu:  2
Events:
  Type     Reason   Age                 From     Message
  ----     ------   ----                ----     -------
  Warning  BackOff  2m (x51 over 1h)    kubelet  Back-off restarting failed container main in pod trainer-0
"""


def test_describe_pod() -> None:
    pod = one(POD, "pod")
    assert pod["oom_killed"] is True
    assert pod["exit_code"] == 137
    assert pod["restarts"] == 7
    assert pod["gpu_limit"] == 4
    assert pod["gpu_request"] == 2
    assert pod["memory_limit_mib"] == 65536
    assert pod["node"] == "gke-1"
    assert one(POD, "pod_container")["last_reason"] == "OOMKilled"
    assert one(POD, "event")["count"] == 51


def test_describe_node() -> None:
    text = "Name:               n2\nLabels:             nvidia.com/gpu.count=8\n                    nvidia.com/gpu.present=true\nTaints:             node.kubernetes.io/unschedulable:NoSchedule\n                    gpu=true:NoSchedule\nUnschedulable:      true\nConditions:\n  Type             Status  LastHeartbeatTime  Reason  Message\n  DiskPressure     True    x   KubeletHasDiskPressure   kubelet has disk pressure\n  Ready            True    x   KubeletReady   ok\nCapacity:\n  cpu:             224\n  memory:          2113470Mi\n  nvidia.com/gpu:  7\nAllocatable:\n  nvidia.com/gpu:  6\nAllocated resources:\n  Resource        Requests  Limits\n  nvidia.com/gpu  5         5\n"
    row = one(text, "node")
    assert (row["label_count"], row["capacity_gpus"], row["allocatable_gpus"], row["allocated_gpus"]) == (8, 7, 6, 5)
    assert row["cordoned"] is True
    assert row["conditions"] == "DiskPressure"
    assert "gpu=true" in str(row["taints"])


def test_get_tables() -> None:
    rows = {
        row["name"]: row
        for row in of(
            "NAME   READY   STATUS             RESTARTS       AGE\na-1    0/1     CrashLoopBackOff   51 (2m ago)    9h\nb-1    0/1     Evicted            0              9h\nc-1    1/1     Running            0              9h\n",
            "pod",
        )
    }
    assert rows["a-1"]["restarts"] == 51
    assert rows["b-1"]["reason"] == "Evicted"
    assert rows["c-1"]["ready"] is True
    rows = {
        row["name"]: row
        for row in of(
            "NAME      STATUS                     ROLES    AGE    VERSION\nn1        Ready,SchedulingDisabled   <none>   208d   v1.28.9\nn2        NotReady                   <none>   208d   v1.28.9\n",
            "node",
        )
    }
    assert rows["n1"]["cordoned"] is True
    assert rows["n2"]["ready"] is False
    rows = {
        row["name"]: row
        for row in of("NAME   GPU_ALLOC   GPU_CAP\nn1     4           8\nn2     <none>      <none>\n", "node")
    }
    assert rows["n1"]["allocatable_gpus"] == 4
    assert rows["n2"]["capacity_gpus"] == 0
    row = one(
        "LAST SEEN   TYPE      REASON             OBJECT        MESSAGE\n3m          Warning   FailedScheduling   pod/cuda      0/3 nodes are available: 2 Insufficient nvidia.com/gpu.\n",
        "event",
    )
    assert row["object"] == "pod/cuda"


YAML_POD = """apiVersion: v1
kind: Pod
metadata:
  name: half
spec:
  containers:
  - name: c
    image: "x:y"
    resources:
      limits:
        nvidia.com/gpu: "0.5"   # half a card
        memory: 8Gi
      requests: {nvidia.com/gpu: 1, cpu: "2"}
    volumeMounts:
    - mountPath: /dev/shm
      name: dshm
  volumes:
  - name: dshm
    emptyDir:
      medium: Memory
      sizeLimit: 16Gi
status:
  phase: Failed
  reason: Evicted
  message: |
    The node was low on resource
    nvidia.com/gpu: 99
"""


def test_yaml_pod() -> None:
    (fact,) = [fact for fact in read(YAML_POD) if fact.kind == "pod"]
    assert fact.fields["gpu_limit"] == 0.5
    assert fact.fields["gpu_request"] == 1
    assert fact.fields["shm_mib"] == 16384
    assert fact.fields["reason"] == "Evicted"
    assert fact.where("gpu_limit").line == 11


def test_json_objects() -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "8"}},
        "spec": {"unschedulable": True},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "7"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    event = {
        "kind": "Event",
        "reason": "Evicted",
        "message": "low on memory",
        "type": "Warning",
        "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p"},
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"restartCount": 3, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
            ],
        },
    }
    for indent in (None, 2):
        text = json.dumps({"kind": "List", "items": [node, event, pod]}, indent=indent)
        assert one(text, "node")["allocatable_gpus"] == 7
        assert one(text, "node")["cordoned"] is True
        assert one(text, "event")["object"] == "pod/p"
        assert one(text, "pod")["oom_killed"] is True
        assert one(text, "pod")["restarts"] == 3


def test_workload_and_quota() -> None:
    text = "kind: PyTorchJob\nmetadata: {name: j}\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      template:\n        spec:\n          containers:\n            - name: pytorch\n              resources:\n                limits:\n                  nvidia.com/gpu: 8\n---\nkind: ResourceQuota\nmetadata:\n  name: team\nspec:\n  hard:\n    requests.nvidia.com/gpu: 8\nstatus:\n  used:\n    requests.nvidia.com/gpu: 8\n"
    assert one(text, "pod")["gpu_limit"] == 8
    assert one(text, "quota") == {"name": "team", "resource": "requests.nvidia.com/gpu", "hard": 8, "used": 8}


@pytest.mark.parametrize(
    "text",
    [
        '[{"Id": "5b1e07c4d2aa", "State": {"Status": "exited", "OOMKilled": true, "ExitCode": 137}, "HostConfig": {"ShmSize": 67108864, "Memory": 34359738368, "IpcMode": "private"}}]',
        '"State": {\n    "Status": "exited",\n    "OOMKilled": true,\n    "ExitCode": 137,\n},\n"Memory": 34359738368,\n"ShmSize": 67108864\n',
    ],
)
def test_inspect_whole_and_in_pieces(text: str) -> None:
    row = one(text, "container")
    assert row["oom_killed"] is True
    assert row["exit_code"] == 137
    assert row["memory_limit_mib"] == 32768
    assert row["shm_mib"] == 64


def test_run_compose_lists() -> None:
    row = one(
        "$ docker run -it -d --name ds --gpus all --network host --shm-size 16G \\\n   --ulimit memlock=-1 -v /data:/data my/img:1 bash -c 'x --gpus'\n",
        "container_request",
    )
    assert row["image"] == "my/img:1"
    assert row["shm_mib"] == 16384
    assert row["memlock"] is True
    assert row["infiniband"] is False
    assert row["shm_default"] is False
    row = one(
        "services:\n  web:\n    image: vllm/vllm\n    ipc: host\n    mem_limit: 64g\n    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              count: 2\n              capabilities: [gpu]\n",
        "container_request",
    )
    assert row["wants_gpu"] is True
    assert row["shm_default"] is False
    assert row["gpus"] == "2"
    assert row["memory_limit_mib"] == 65536
    rows = of(
        'CONTAINER ID   IMAGE     COMMAND   CREATED       STATUS                       PORTS     NAMES\n5b1e07c4d2aa   a:b       "x"       2 hours ago   Exited (137) 3 minutes ago             trainer\n5b1e07c4d2ab   a:b       "x"       2 hours ago   Up 2 hours (healthy)                   web\n',
        "container",
    )
    assert rows[0]["exit_code"] == 137
    assert rows[1]["state"] == "running"


def test_runtime_settings() -> None:
    rows = of(
        '{\n "default-runtime": "nvidia",\n "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},\n "exec-opts": ["native.cgroupdriver=systemd"]\n}\n',
        "runtime_setting",
    )
    assert {(row["name"], row["value"]) for row in rows} == {
        ("default_runtime", "nvidia"),
        ("runtime", "nvidia"),
        ("cgroup_driver", "systemd"),
    }
    assert one(" Default Runtime: runc\n", "runtime_setting")["nvidia"] is False


def test_real_cluster_outputs() -> None:
    rows = of(
        shared("cases", "app-065-k8s-insufficient-gpu-and-cordoned", "input", "describe-nodes-excerpt.txt"), "node"
    )
    assert [(row["name"], row["allocated_gpus"], row["cordoned"]) for row in rows] == [
        ("comput2", 4, False),
        ("comput3", 0, True),
    ]
    rows = of(shared("data", "gcm", "sinfo.txt"), "node")
    assert rows
    assert any(row["drained"] for row in rows)
