"""All looks. A module is imported only when one of its looks is taken."""

from __future__ import annotations

from gpuclinic.clinic.looks._look import Look

LOOKS: tuple[Look, ...] = (
    Look("pci.bus", "bus:look_at_bus", required=True, sampled=True),
    Look("pcie.acs", "bus:look_at_acs", deep=True),
    Look("sensors.power", "sensors:look_at_power"),
    Look("kernel.log", "kernel_log:look_at_kernel_log"),
    Look("kernel.log.earlier", "kernel_log:look_at_earlier_logs", deep=True),
    Look("kernel.boots", "boots:look_at_boots"),
    Look("kernel.state", "kernel_state:look_at_kernel_state"),
    Look("driver", "driver:look_at_driver", commands=(("modinfo", "nvidia"),)),
    Look("driver.next_boot", "next_boot:look_at_next_boot"),
    Look("driver.upgrades", "upgrades:look_at_upgrades"),
    Look("driver.smi", "driver:look_at_smi", commands=(("nvidia-smi", "--version"),), deep=True),
    Look("host.memory", "host:look_at_memory", sampled=True),
    Look("host.cpu", "host:look_at_cpu", sampled=True),
    Look("host.neighbours", "host:look_at_neighbours", deep=True, sampled=True),
    Look("host.cgroup", "host:look_at_cgroups", sampled=True),
    Look("host.time", "host:look_at_time"),
    Look("storage.mounts", "storage:look_at_mounts"),
    Look("storage.devices", "storage:look_at_devices", sampled=True),
    Look("storage.remote", "storage:look_at_network_file_systems", sampled=True),
    Look("storage.disk_health", "storage:look_at_disk_health", deep=True),
    Look("network.rdma", "network:look_at_rdma", sampled=True),
    Look("network.interfaces", "network:look_at_interfaces", sampled=True),
    Look("network.names", "network:look_at_names"),
    Look("network.resolution", "network:look_at_resolution", deep=True),
    # NVML was begun before all others; what follows needs its answer.
    Look("gpu.nvml", "gpu:look_at_gpus", required=True, sampled=True),
    Look("fabric.services", "fabric:look_at_fabric"),
    Look("process.gpu", "processes:look_at_processes"),
    Look("container.runtime", "containers:look_at_containers"),
    Look("scheduler.node", "schedulers:look_at_schedulers"),
    Look("process.stuck", "processes:look_at_stuck"),
    Look("software.environments", "software:look_at_environments", after=("driver",)),
    Look("host.ulimits", "host:look_at_limits"),
    Look("host.settings", "host:look_at_settings"),
    # The slowest programs come last: all of them were started with the first look, and run while the others are taken.
    Look(
        "sensors.board",
        "sensors:look_at_board",
        deep=True,
        commands=(
            ("ipmitool", "sdr", "elist"),
            ("ipmitool", "sel", "elist", "last", "500"),
            ("ipmitool", "dcmi", "power", "reading"),
        ),
    ),
    Look("snapshot.texts", "snapshot_texts:look_at_texts"),  # last: it takes what the others did not ask for
)
