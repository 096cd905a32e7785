/* PCIe, NVLink, fabric, topology. */

ONE_UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", "pcie.gen")
ONE_UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", "pcie.width")
ONE_UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", "pcie.gen.max")
ONE_UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", "pcie.width.max")
ONE_UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gen_max", "pcie.gen.device_max")
ONE_UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays", "pcie.replays")
ONE_UINT(nvmlDeviceGetPcieLinkMaxSpeed, "pcie_speed_max", "pcie.gen.device_max") /* the codes 1..6 are the generations */
nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned *out) {
    static const unsigned mbps[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    long long gen;
    nvmlReturn_t code;
    ENTER(device, "pcie_speed");
    if ((code = number(device, "pcie.gen", &gen))) return code;
    *out = gen >= 0 && gen <= 6 ? mbps[gen] : 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "pcie_throughput");
    if (counter > 1) return INVALID_ARGUMENT;
    if (!(code = number(device, counter ? "pcie.rx" : "pcie.tx", &value))) *out = (unsigned)value;
    return code;
}

/* ---- NVLink: "nvlink.7.state" is of link 7, "nvlink.state" of those that have no line of their own ------------ */

static entry_t *link_entry(const device_t *device, unsigned link, const char *what) {
    char key[64];
    entry_t *entry;
    snprintf(key, sizeof key, "nvlink.%u.%s", link, what);
    if ((entry = entry_of(device, key))) return entry;
    snprintf(key, sizeof key, "nvlink.%s", what);
    return entry_of(device, key);
}
static nvmlReturn_t link_number(const device_t *device, unsigned link, const char *what, long long *out) {
    long long count = number_or(device, "nvlink.count", 0);
    if (!count) return NOT_SUPPORTED;
    if ((long long)link >= count) return INVALID_ARGUMENT;
    return evaluate(link_entry(device, link, what), out);
}
#define ONE_OF_LINK(function, call, what)                                               \
    nvmlReturn_t function(nvmlDevice_t device, unsigned link, unsigned *out) {          \
        long long value;                                                                \
        nvmlReturn_t code;                                                              \
        ENTER(device, call);                                                            \
        if (!(code = link_number(device, link, what, &value))) *out = (unsigned)value;  \
        return code;                                                                    \
    }
ONE_OF_LINK(nvmlDeviceGetNvLinkState, "nvlink", "state")
ONE_OF_LINK(nvmlDeviceGetNvLinkVersion, "nvlink_version", "version")
ONE_OF_LINK(nvmlDeviceGetNvLinkRemoteDeviceType, "nvlink_remote", "remote_type")
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, unsigned capability, unsigned *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "nvlink_capability");
    if (capability > 5) return INVALID_ARGUMENT;
    if ((code = link_number(device, link, "state", &value))) return code;
    *out = capability != 4; /* everything but SLI */
    return OK;
}
static const char *const link_errors[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter, unsigned long long *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "nvlink_errors");
    if (counter > 4) return INVALID_ARGUMENT;
    if (!(code = link_number(device, link, link_errors[counter], &value))) *out = (unsigned long long)value;
    return code;
}
static nvmlReturn_t link_remote(nvmlDevice_t device, unsigned link, pci_t *out, const char *function) {
    long long state;
    nvmlReturn_t code = enter(device, "nvlink_remote", function);
    entry_t *entry;
    if (code || (code = link_number(device, link, "state", &state))) return code;
    entry = link_entry(device, link, "remote");
    if (refusal(entry ? entry->value : NULL)) return refusal(entry ? entry->value : NULL);
    memset(out, 0, sizeof *out);
    if (sscanf(entry->value, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) return UNKNOWN;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0x1f);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    return OK;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, pci_t *out) { return link_remote(device, link, out, __func__); }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, pci_t *out) {
    pci_t full;
    nvmlReturn_t code = link_remote(device, link, &full, __func__);
    if (!code) memcpy(out, &full, 36);
    return code;
}

/* ---- fabric: state 0 not supported, 1 not started, 2 in progress, 3 completed; status is an NVML code ---------- */

typedef struct { unsigned char cluster[16]; unsigned status, clique, state; } fabric_t;
typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique, state, health; unsigned char summary; } fabric_v_t;
static nvmlReturn_t fabric(nvmlDevice_t device, fabric_t *out, const char *function) {
    const char *cluster;
    long long state;
    nvmlReturn_t code = enter(device, "fabric", function);
    if (code || (code = number(device, "fabric.state", &state))) return code;
    memset(out, 0, sizeof *out);
    out->state = (unsigned)state;
    out->status = (unsigned)number_or(device, "fabric.status", 0);
    out->clique = (unsigned)number_or(device, "fabric.clique", 0);
    cluster = text_of(device, "fabric.cluster"); /* a UUID */
    for (int at = 0; cluster && *cluster && at < 16; cluster++) {
        unsigned byte;
        if (*cluster == '-' || sscanf(cluster, "%2x", &byte) != 1) continue;
        out->cluster[at++] = (unsigned char)byte;
        if (*++cluster == 0) break;
    }
    return OK;
}
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, fabric_t *out) { return fabric(device, out, __func__); }
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, fabric_v_t *out) {
    fabric_t plain;
    unsigned newest = (unsigned)number_or(&machine, "fabric.newest", 3), version = out->version >> 24;
    nvmlReturn_t code = fabric(device, &plain, __func__);
    if (code) return code;
    if (version < 2 || version > newest || (out->version & 0xffffff) != (version == 2 ? 36u : 40u)) return VERSION_MISMATCH;
    memcpy(out->cluster, plain.cluster, 16);
    out->status = plain.status, out->clique = plain.clique, out->state = plain.state;
    out->health = (unsigned)number_or(device, "fabric.health", 0);
    if (version == 3) out->summary = (unsigned char)number_or(device, "fabric.summary", 0);
    return OK;
}

/* ---- topology: GPUs of one "pcie.switch" are a switch apart, of one "numa" a host bridge, else a socket -------- */

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second, unsigned *out) {
    ENTER(first, "topology");
    if (number_or(first, "pcie.switch", -1) == number_or(second, "pcie.switch", -2)) *out = 10;
    else if (number_or(first, "numa", 0) == number_or(second, "numa", 0)) *out = 40;
    else *out = 50;
    return OK;
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second, unsigned index, unsigned *out) {
    char key[32];
    ENTER(first, "p2p");
    if (index > 4) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "p2p.%d", second->gpu);
    *out = (unsigned)number_or(first, key, index == 2 && !number_or(first, "nvlink.count", 0) ? 5 : number_or(first, "p2p", 0));
    return OK;
}
