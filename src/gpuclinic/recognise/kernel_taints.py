"""Names of the bits of /proc/sys/kernel/tainted (kernel Documentation/admin-guide/tainted-kernels.rst)."""

TAINTS = {
    0: "proprietary", 1: "forced_load", 4: "machine_check", 5: "bad_page", 7: "died", 9: "warned", 12: "out_of_tree", 13: "unsigned",
    14: "lockup", 15: "live_patched",
}  # fmt: skip
