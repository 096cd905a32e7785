"""Parsers of the gpu tools: names and marks only, so that start-up stays cheap."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

_CSV_CELL = r"[a-z][\w.]*(?: \[[^\]\n]*\])?"
_CSV_KNOWN = (
    r"(?:pci\.bus_id|gpu_bus_id|gpu_uuid|uuid|gpu_name|name|index|timestamp|pid|utilization\.gpu|memory\.used"
    r"|temperature\.gpu|power\.draw|pstate)"
)
_CSV_HEAD = rf"^{_CSV_CELL}, (?:{_CSV_CELL}, ?)*{_CSV_KNOWN}\b"
_CSV_HEAD_FIRST = rf"^{_CSV_KNOWN}(?: \[[^\]\n]*\])?, ?[a-z][\w.]*"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "nvidia-smi",
        (
            r"NVIDIA-SMI[ \t]+\d{3}[\d.]*\s+(?:Driver|KMD) Version",
            r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F] +(?:On|Off|N/A)\b",
            r"^\|? *GPU +(?:GI +CI +)?PID +Type +Process name",
            r"^\|? *No running processes found",
        ),
        "nvidia_smi_table:parse_table",
    ),
    Entry(
        "gpustat",
        (r"^[ \t>]{0,80}\[\d{1,3}\] [^|\n]{2,60}\|[^|\n]{3,60}% ?[^|\n]{0,30}\| *\d+ / *\d+ MB",),
        "gpustat:parse_gpustat",
    ),
    Entry(
        "nvidia-smi: device handle", (r"Unable to determine the device handle for",), "nvidia_smi_table:parse_handles"
    ),
    Entry(
        "nvidia-smi -q",
        (
            r"=NVSMI LOG=",
            r"^[ \t]{0,80}Attached GPUs *: \d",
            r"^[ \t]{0,80}GPU [0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F][ \t]*$",
        ),
        "nvidia_smi_query:parse_query",
    ),
    Entry(
        "nvidia-smi -q -x",
        (r"<nvidia_smi_log>", r"nvsmi_device_v\d+\.dtd", r"<gpu id=\"[0-9A-Fa-f:.]{7,}\">"),
        "nvidia_smi_xml:parse_xml",
    ),
    Entry("NVML answers", (r"\"gpuclinic_nvml\"\s*:\s*1\b",), "nvml:parse_nvml"),
    Entry("nvidia-smi -L", (r"^[ \t>|]{0,80}GPU \d{1,3}: .{1,80} \(UUID: ",), "nvidia_smi_list:parse_list"),
    Entry(
        "nvidia-smi --version",
        (r"^(?:NVML|DRIVER|KMD) version\s*: ", r"NVML library version: \d"),
        "nvidia_smi_list:parse_versions",
    ),
    Entry(
        "nvidia-smi mig",
        (r"^\| GPU +(?:instance|Instance)", r"^\|[ \t]+\d+[ \t]+MIG \d+[gc]\."),
        "nvidia_smi_list:parse_mig",
    ),
    Entry("nvidia-smi -pm", (r"[Pp]ersistence mode (?:for|is already \w+ for) GPU",), "nvidia_smi_list:parse_settings"),
    Entry(
        "nvidia-smi csv",
        (
            _CSV_HEAD,
            _CSV_HEAD_FIRST,
            r"--query-(?:gpu|compute-apps)[= ]\S{1,4000} .{0,200}noheader",
        ),
        "nvidia_smi_csv:parse_csv",
    ),
    Entry(
        "nvidia-smi dmon/pmon", (r"^[ \t>]{0,80}# ?(?:Date +Time +|Time +)?gpu +\w",), "nvidia_smi_mon:parse_monitor"
    ),
    Entry(
        "nvidia-smi topo",
        (r"^[ \t>|]{0,80}(?:\x1b\[4m)?[ \t]{0,20}GPU0[ \t]+(?:GPU1|CPU Affinity)",),
        "topo:parse_topo",
    ),
    Entry("p2pBandwidthLatencyTest", (r"^Unidirectional P2P=Disabled Bandwidth Matrix",), "p2p:parse_p2p_test"),
    Entry(
        "nvidia-smi nvlink",
        (
            r"^[ \t>|]{0,80}Link \d{1,2}: (?:\d+(?:\.\d+)? GB/s|<inactive>|[A-Z][\w ]+:)",
            r"Unable to retrieve NVLink information",
            r"(?:Nvlink queries are not supported|does not have or support Nvlink)",
        ),
        "nvlink:parse_nvlink",
    ),
    Entry("dcgmi diag -j", (r"\"DCGM (?:GPU )?Diagnostic\"",), "dcgm:parse_diag_json"),
    Entry("dcgmi diag", (r"^\+-+.*\n?\| Diagnostic +\| Result", r"^\| Diagnostic +\| Result"), "dcgm:parse_diag_table"),
    Entry("dcgmi health", (r"^\| Overall Health",), "dcgm:parse_health"),
    Entry("dcgmi discovery", (r"^\d{1,4} GPUs? found\.",), "dcgm:parse_discovery"),
    Entry("GPU metrics", (r"^(?:DCGM_FI|nvidia_smi)_\w+\{",), "metrics:parse_metrics"),
    Entry(
        "lspci",
        (
            r"^(?:[0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z0-9][\w /()-]+?(?: \[[0-9a-f]{4}\])?: .*NVIDIA",
            r"^[ \t]{1,80}ACSCtl:",
            r"^[ \t]{1,80}LnkSta:",
        ),
        "lspci:parse_lspci",
    ),
    Entry(
        "lsmod",
        (
            r"^Module +Size +Used by",
            r"^(?:nvidia\w*|nouveau|nova_core|nova_drm|gdrdrv) +\d{4,} +-?\d+",
            r"(?:^|[$#>] *)(?:sudo )?lsmod *\|",
        ),
        "modules:parse_lsmod",
    ),
    Entry("/proc/driver/nvidia/version", (r"NVRM version:[ \t]+NVIDIA UNIX",), "modules:parse_driver_version"),
    Entry(
        "dkms status",
        (
            r"^[ \t]{0,80}[\w.+-]+[/,] ?\d[\w.+~-]*(?:, [\w.+~-]+, [\w-]+)?[ \t]*: (?:installed|built|added)",
            r"^[ \t]{0,80}nvidia[\w.+-]*[/,] ?\d[^:\n]{0,120}: (?:broken|failed)",
        ),
        "modules:parse_dkms",
    ),
    Entry("modinfo", (r"^filename: +/\S+\.ko", r"modinfo: ERROR: Module \S+ not found"), "modules:parse_modinfo"),
    Entry("kernel module files", (r"^/lib/modules/\S+/nvidia[\w-]*\.ko",), "modules:parse_module_files"),
    Entry("mokutil", (r"^[ \t]{0,80}Secure ?Boot(?: is)?:? (?:enabled|disabled)",), "modules:parse_secure_boot"),
    Entry(
        "device nodes",
        (
            r"^[cb]rw.{6}.* /dev/nvidia",
            r"^c[rwx-]{9}.*\d+, +\d+ .* nvidia(?:ctl|\d|-)",
            r"(?:cannot access|No such file).*/dev/(?:nvidia|infiniband)",
        ),
        "modules:parse_device_nodes",
    ),
    Entry("pip list", (r"^Package +Version", r"^[A-Za-z0-9][\w.-]*==\d[\w.+!-]*[ \t]*$"), "pyenv:parse_pip"),
    Entry("package metadata", (r"\AMetadata-Version: \d",), "pyenv:parse_metadata", whole=True),
    Entry("conda list", (r"^# packages in environment at ", r"^# +Name +Version +Build"), "pyenv:parse_conda"),
    Entry(
        "driver packages",
        (
            r"^ii +(?:lib)?(?:nvidia|cuda|linux-modules-nvidia|nccl)\S* +\d",
            r"^(?:kmod-|akmod-)?(?:nvidia|cuda|libnccl)[\w+-]*-\d[\w.:~+]*-\S+\.(?:x86_64|aarch64|noarch)$",
        ),
        "pyenv:parse_system_packages",
    ),
    Entry("collect_env", (r"^[ \t]{0,80}PyTorch version: ",), "torch_env:parse_collect_env"),
    Entry("python -c", (r"python[\d.]{0,8} {1,4}-c {1,4}['\"].{0,200}torch",), "torch_env:parse_prints"),
    Entry(
        "ldd",
        (
            r"^[ \t]{1,80}[\w.+-]+\.so[\w.]* => (?:/\S+ \(0x|not found)",
            r"version [`'‘]GLIBC\w*_[\d.]+['’] not found \(required by",
        ),
        "ldd:parse_ldd",
    ),
    Entry(
        "RDMA ports",
        (r"^[ \t]{0,80}CA '[\w.-]+'", r"^Infiniband device '", r"^[ \t]{0,80}hca_id:\s"),
        "rdma:parse_ports",
    ),
    Entry(
        "rdma link",
        (
            r"^[ \t]{0,80}(?:\d+/\d+: |link )[\w.-]+/\d+:? .*state \w+",
            r"^[ \t]{0,80}\w+ port \d+ ==> \S+ \((?:Up|Down)\)",
        ),
        "rdma:parse_links",
    ),
    Entry("perfquery", (r"^# Port (?:extended )?counters:",), "rdma:parse_perfquery"),
    Entry("ibqueryerrors", (r'^Errors for (?:0x[0-9a-f]+ )?"',), "rdma:parse_query_errors"),
    Entry("mlxlink", (r"^Physical Counters and BER Info",), "rdma:parse_mlxlink"),
    Entry("mlnx_qos", (r"^PFC configuration:",), "rdma:parse_qos"),
    Entry("show_gids", (r"^DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID",), "rdma:parse_gids"),
    Entry("ethtool -S", (r"^NIC statistics:",), "rdma:parse_ethtool"),
    Entry(
        "/sys/class/infiniband",
        (
            r"infiniband/[\w.-]+/ports/\d+/(?:(?:hw_)?counters/)?\w+[: ]",
            r"\A\d: (?:ACTIVE|DOWN|INIT|ARMED|LinkUp|Polling|Disabled)\s*\Z",
        ),
        "rdma:parse_sys",
    ),
    Entry(
        "NCCL flight recorder",
        (r"\A\x80[\x02-\x05]", r"\"(?:pg_config|pg_status|collective_seq_id)\""),
        "flight_recorder:parse_flight_recorder",
    ),
    Entry("rocm-smi", (r"\"card\d+\": ?\{",), "rocm_smi:parse_rocm"),
)
