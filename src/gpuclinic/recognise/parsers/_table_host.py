"""Parsers of the host tools: names and marks only, so that start-up stays cheap."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry("df", (r"[\d-][KMGTPEi]*\s+\d{1,3}\s?%\s+/",), "disk:parse_df"),
    Entry("ls -l", (r"^\s*(?:\d+ )?[-dlbcps][-rwxsStT]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+[\d,]+",), "disk:parse_listing"),
    Entry("du", (r"^\d[\d.]*[KMGTP]\s+[/.]\S*$",), "disk:parse_du"),
    Entry(
        "mounts",
        (
            r"^\S+ on /\S* type \w+ \(",
            r"^\S+ /\S* [a-z]\w+ (?:rw|ro|defaults)\b\S* \d \d\s*$",
            r"^TARGET\s+SOURCE\s+FSTYPE",
        ),
        "disk:parse_mounts",
    ),
    Entry("free", (r"^\s*(?:Mem|Mém|内存|記憶體|メモリ|Speicher|Speich|Minne)\s*[:：.]\s*\d",), "memory:parse_free"),
    Entry("meminfo", (r"^\s*MemTotal:\s+\d+ kB",), "memory:parse_meminfo"),
    Entry(
        "cgroup",
        (
            (
                r"memory\.(?:max|current|high|peak|events|limit_in_bytes|usage_in_bytes|failcnt|oom_control|"
                r"max_usage_in_bytes)\b"
            ),
            r"^oom_kill \d+$",
        ),
        "memory:parse_cgroup",
    ),
    Entry(
        "ps",
        (
            r"PID\b[^\n]{0,200}\b(?:CMD|COMMAND|STAT|WCHAN|ARGS)\b",
            r"^\S+\s+\d+\s+\d+\.\d\s+\d+\.\d\s+\d+\s+\d+\s+\S+\s+[DRSTtZI]",
            r"^\S+\s+\d+\s+\d+\s+\d+\s+(?:\d\d:\d\d|[A-Z][a-z]{2}\d\d|\d{4})\s+(?:\?|pts/\d+|tty\S*)\s",
            r"^top - \d\d:\d\d",
        ),
        "processes:parse_ps",
    ),
    Entry(
        "terminal",
        (
            r"[#$%>]\s+[^\n]*(?:/proc/\d{2,8}\b|kill -0 \d|\bps\b[^\n|]*-p ?\d|169\.254\.169\.254|100\.100\.100\.200|metadata\.google)",
            r"[#$%>]\s+[^\n]*\bps [^\n|]*o[ =]?\w+,[^\n]*\|",
        ),
        "terminal:parse_terminal",
    ),
    Entry("GPU processes of a snapshot", (r'"nvml_(?:name|pid_namespace)"\s*:',), "snapshot:parse_gpu_processes"),
    Entry("pid probe", (r'"direct_open"\s*:',), "snapshot:parse_pid_probe"),
    Entry("systemctl show memory", (r"^\s*Memory(?:Max|Limit|High)=\d{4,}",), "terminal:parse_unit_memory"),
    Entry("audit log", (r"^type=OBJ_PID msg=audit\(",), "audit:parse_audit"),
    Entry("stat", (r"^\s*(?:Modify|最近更改|修改时间|Modifié|Modifiziert)\s*[:：]",), "terminal:parse_stat"),
    Entry("redis.conf", (r"^\s*protected-mode (?:yes|no)",), "terminal:parse_redis"),
    Entry("pstree", (r"\(\d+\)[─-]{1,3}[┬─+-]",), "processes:parse_pstree"),
    Entry(
        "lsof",
        (r"/dev/(?:nvidia|kfd|dri)\S*:?\s+(?:\d+|USER|[\w.-]+\s+\d+)", r"^\S+\s+\d+\s+[^\n]*\s/dev/(?:nvidia|kfd)"),
        "processes:parse_device_users",
    ),
    Entry("kernel stack", (r"^\s*(?:#\d+ +)?\[<[0-9a-f]+>\] [\w.]+\+0x",), "processes:parse_stack"),
    Entry(
        "limits",
        (
            r"\((?:[^()\n]{0,30}, ?)?-[nlucsv]\)\s+(?:\d+|unlimited|无限制|不限)",
            r"^Max (?:open files|locked memory|processes)\s",
            r"\b(?:nofile|memlock|nproc)\s+(?:-?\d+|unlimited|infinity)",
            r"^\s*(?:Default)?Limit(?:NOFILE|MEMLOCK|NPROC)=",
            r"ulimit\s+-[SH]*[nlu]\b",
            r"^descriptors\s+\d",
            r"^-n: ",
        ),
        "limits:parse_limits",
    ),
    Entry(
        "open descriptors",
        (r"/proc/\d+/fd[^\n]*\|\s*wc -l", r"lsof[^\n]*-p[^\n]*\|\s*wc -l"),
        "limits:parse_descriptor_count",
    ),
    Entry(
        "interfaces",
        (
            r"^\s*\d+: [\w.@-]+: <[\w,-]+>",
            r"^\S+: flags=\d+<",
            r"^\S+\s+Link encap:",
            r"^Settings for \S+:",
            r"^\s*\d+: [\w.@-]+\s+inet6?\s",
            r"^(?:lo|eth\d|en\w+|ib\w+|bond\d)\s+(?:UP|DOWN|UNKNOWN)\s",
        ),
        "net:parse_interfaces",
    ),
    Entry("ping", (r"packets transmitted, \d+",), "net:parse_ping"),
    Entry(
        "hosts",
        (
            r"^\s*127\.\d+\.\d+\.\d+\s+[\w.-]+",
            r"getent\s+(?:a?hosts|ahostsv4)",
            r"^\s*(?:\d{1,3}\.){3}\d{1,3}\s+(?:STREAM|DGRAM)\b",
            r"\A\s*(?:\d{1,3}\.){3}\d{1,3}\s+[a-z][\w.-]*\s*$",
        ),
        "net:parse_hosts",
    ),
    Entry("resolv.conf", (r"^\s*nameserver\s+\S+\s*$",), "net:parse_resolver"),
    Entry("routes", (r"^\s*default via [\d.]+ dev \S+", r"^\s*[\d.]+/\d+ dev \S+"), "net:parse_routes"),
    Entry("ethtool -S", (r"^NIC statistics:",), "net:parse_nic_counters"),
    Entry(
        "sockets",
        (
            r"^(?:(?:tcp|udp)6?\s+)?(?:LISTEN|ESTAB|SYN-SENT|UNCONN|TIME-WAIT|CLOSE-WAIT)\s+\d+\s+\d+\s",
            r"^(?:tcp|udp)6?\s+\d+\s+\d+\s+\S+:\S+\s+\S+:\S+",
        ),
        "sockets:parse_sockets",
    ),
    Entry(
        "firewall",
        (
            r"^Chain \S+ \(",
            r"^\s*(?:\d+\s+)?(?:\S+\s+\S+\s+)?(?:ACCEPT|DROP|REJECT)\s+(?:all|tcp|udp|icmp)\s+--",
            r"^(?:iptables )?-[AI] \w+ [^\n]*-j (?:ACCEPT|DROP|REJECT)",
            r"^-P [A-Z]+ (?:ACCEPT|DROP|REJECT)",
            r"^table (?:inet|ip|ip6) \w+ \{",
            r"^Status: active\s*$",
            r"^\s+(?:services|ports|rich rules): ",
        ),
        "sockets:parse_firewall",
    ),
    Entry(
        "ipmitool sel",
        (r"^\s*[0-9a-fA-F]+\s*\|\s*(?:\d\d/\d\d/\d{2,4}|[A-Z][a-z]{2}-\d\d-\d{4}|Pre-Init|\d{4}-\d\d-\d\d)\s*\|",),
        "bmc:parse_sel",
    ),
    Entry("ipmitool chassis", (r"^Last Power Event\s*:", r"^System restart cause: "), "bmc:parse_chassis"),
    Entry("racadm", (r"^Record:\s+\d+", r"^SeqNumber\s*="), "bmc:parse_racadm"),
    Entry("redfish log", (r'"@odata\.type"\s*:\s*"#LogEntry',), "bmc:parse_redfish"),
    Entry(
        "sensors",
        (
            r"^[\w+][^|\n]{0,40}\|\s*[^|\n]+\|\s*(?:ok|ns|nc|cr|nr|degrees C|RPM|Volts|Watts|discrete)\b",
            r"^[a-z]\w*-(?:isa|pci|i2c|acpi|virtual)-[0-9a-f]+\s*$",
            r"^\w[\w +]*:\s+[+-]?[\d.]+\s*(?:°C|RPM)",
        ),
        "bmc:parse_sensors",
    ),
    Entry(
        "dmidecode",
        (r"^Handle 0x[0-9A-Fa-f]+, DMI type", r"^\s*Max Power Capacity:", r"^System Power Supply\s*$"),
        "bmc:parse_dmidecode",
    ),
    Entry("uname", (r"^Linux \S+ \d+\.\d+\.\S+ #", r"uname -\w*r"), "system:parse_uname"),
    Entry(
        "sysctl",
        (r"^(?:vm\.(?:overcommit_memory|swappiness|min_free_kbytes|max_map_count)|kernel\.pid_max) = \d",),
        "system:parse_sysctl",
    ),
    Entry("timedatectl", (r"^\s*(?:System clock|NTP) synchronized: ", r"^NTPSynchronized="), "clock:parse_timedatectl"),
    Entry("chronyc tracking", (r"^Leap status\s+: ",), "clock:parse_chronyc"),
    Entry("ntpq -p", (r"^\s+remote\s+refid\s+st\s+t\s+when\s+poll",), "clock:parse_ntpq"),
    Entry(
        "uptime",
        (r"\bup\s+[^\n]{1,60}(?:load averages?|平均负载)\s*[:：]", r"\A\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+/\d+ \d+"),
        "system:parse_uptime",
    ),
    Entry("last", (r"^(?:reboot|shutdown)\s+(?:system (?:boot|down)|~)\s",), "system:parse_last"),
    Entry("who -b", (r"^\s+(?:system boot|系统引导)  \S",), "system:parse_who"),
    Entry("boots", (r"^\s*-?\d+ [0-9a-f]{32} \w{3} \d{4}-",), "system:parse_boots"),
    Entry("lscpu", (r"^CPU\(s\)[:：]", r"^Socket\(s\)[:：]", r"nproc$", r"^型号名称[:：]"), "system:parse_lscpu"),
    Entry("kernel command line", (r"BOOT_IMAGE=", r"^\s*GRUB_CMDLINE_LINUX"), "system:parse_cmdline"),
    Entry("modprobe.d", (r"^\s*(?:blacklist [\w-]+|options [\w-]+ \w+=|install [\w-]+ /)",), "system:parse_modprobe"),
    Entry("numactl", (r"^node \d+ (?:size|cpus): ",), "system:parse_numactl"),
    Entry(
        "environment",
        (
            (
                r"(?:^|[\s\"'-])(?:export\s+|ENV\s+|setenv\s+)?(?:CUDA_|NCCL_|GLOO_|TORCH_|PYTORCH_|NVIDIA_|UCX_|VLLM_|"
                r"RAY_|HIP_|ROCR_|LD_LIBRARY|LD_PRELOAD|SLURM_|MASTER_|TP_SOCKET|XLA_|TF_|OMP_NUM)\w*(?:=|[ ]\S+$)"
            ),
            r"^(?:RANK|LOCAL_RANK|WORLD_SIZE|HOSTNAME|PATH)=",
            r"\x00(?:PATH|HOME|CUDA_\w+|PWD)=",
        ),
        "environment:parse_env",
    ),
    Entry("iostat", (r"^(?:Device|设备):?\s+[^\n]*%util", r"^avg-cpu:"), "storage_io:parse_iostat"),
    Entry("vmstat", (r"^\s*r\s+b\s+swpd", r"%(?:iowait|idle)\s[^\n]*%(?:steal|idle)"), "storage_io:parse_cpu_samples"),
    Entry(
        "nfsiostat",
        (r" mounted on /", r"^device \S+ mounted on \S+ with fstype nfs"),
        "storage_io:parse_nfsiostat",
    ),
    Entry(
        "systemd units",
        (
            r"^\s*Active: \w+",
            r"could not be found",
            r"^\s*(?:[●*○×]\s*)?[\w@.-]+\.service\s+(?:loaded|not-found|masked)",
            r"^(?:ActiveState|SubState|ExecMainStatus|NRestarts)=",
            r"systemctl\s+is-(?:active|failed)",
            r"^\S+\s+(?:RUNNING|FATAL|BACKOFF|STOPPED)\s",
            r"^[\w-]+\.[\w-]+\s+(?:enabled|disabled)\s+(?:active|inactive)\b",
        ),
        "services:parse_services",
    ),
    Entry(
        "core dumps",
        (r"^\s*PID: \d+ \([^)]*\)\s*$", r"^TIME\s+PID\s+UID\s+GID\s+SIG\s+COREFILE"),
        "core_dumps:parse_core_dumps",
    ),
    Entry("unit file", (r"^\[Service\]\s*$",), "services:parse_unit_file"),
    Entry(
        "package history",
        (
            r"^Start-Date: \d",
            r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:install|upgrade|remove) \S+",
            r"^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d (?:Updated|Installed|Erased): ",
            r"^\S+ (?:SUBDEBUG|INFO) (?:Upgraded?|Installed?|Removed?|Erased?): ",
            r"\[ALPM\] (?:upgraded|installed|removed)",
            r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|(?:install|remove)",
            r"^\s+(?:Upgraded?|Install|Obsoleted|Dep-Install) +[\w.+:-]+-\d\S+ +@",
        ),
        "packages:parse_changes",
    ),
    Entry(
        "crontab",
        (r"^\s*(?:[\d*/,-]+\s+){4}[\d*/,-]+\s+\S", r"^\s*@(?:reboot|hourly|daily|weekly|monthly)\s+\S"),
        "access:parse_cron",
    ),
    Entry(
        "authorized_keys",
        (r"(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d+)\s+AAAA",),
        "access:parse_authorized_keys",
    ),
    Entry(
        "sshd_config",
        (
            (
                r"^\s*(?:PermitRootLogin|PasswordAuthentication|PermitEmptyPasswords|permitrootlogin|passwordauthentication)"
                r"\s+\w"
            ),
        ),
        "access:parse_sshd",
    ),
    Entry(
        "jupyter",
        (r"^\s*c\.(?:NotebookApp|ServerApp|IdentityProvider)\.", r"jupyter(?:-lab|-notebook)?\b[^\n]{0,200}--"),
        "access:parse_jupyter",
    ),
    Entry("ld.so.preload", (r"ld\.so\.preload", r"\A\s*/\S+\.so(?:\.\d+)*\s*\Z"), "access:parse_preload"),
    Entry(
        "step times",
        (
            r"r0=\d+(?:\.\d+)?[^\n]{0,40}\br1=",
            r"rank ?0[=:][^\n]{0,60}\brank ?1[=:]",
            r"(?i)elapsed time per iteration",
            (
                r"(?i)\b(?:step|iter(?:ation)?|batch|data(?:loader)?|load)[_ -]?(?:time|wait|ms)\w*\s*(?:\(\w+\))?\s*"
                r"[:=]\s*\d"
            ),
            r"Time\s+\d+\.\d+ \(\s*\d+\.\d+\)",
            r"(?i)\bdata(?:loader)?[_ ](?:time|load|wait)\w*\s*[:= ]\s*\d",
            r"(?i)^\W*rank\b[^\n]*(?:_ms|\(ms\)|\(s\)|_s\b|time)",
            r"(?i)\bstep[ =:]*\d+[^\n]*\b(?:dt|took|time)[ =:]\s*\d",
            r"\d\s*(?:s/it|it/s)\b",
            r"(?i)\bdata(?:[_ ]?(?:time|load\w*|wait))?[\"']? ?[:=]? ?\(?\d+\.\d+",
            r"(?i)(?:h2d|htod|(?:cpu|host) ?(?:->|→|to|2) ?(?:gpu|device))(?:[_ ]\w+)?[\"']? ?[:=]? ?\d+(?:\.\d+)? ?m?s\b",
            r"(?i)\b(?:fwd[_+/]?bwd|fwd|forward\w*|bwd_allreduce\w*|grad_sync\w*)[ =:]+\d+\.\d+",
        ),
        "steps:parse_steps",
    ),
    Entry("torch elastic error file", (r'^\s*\{\s*"message"\s*:\s*(?:\{|")',), "launches:parse_error_file", whole=True),
    Entry(
        "inventory",
        (
            r"(?i)^[^\n]*\b(?:host(?:name)?|node|server|主机)\b[^\n]*[;,\t][^\n]*\b(?:gpus?|gpu_count|卡数)\b",
            r"(?im)^[a-z][\w.-]+[;,][^\n]*\b(?:HGX|DGX|H100|H200|A100|B200|V100|L40S)\b[^\n]*[;,]\s*\d{1,2}\b",
        ),
        "launches:parse_inventory",
    ),
)
