/* Life cycle, the machine, handles and identity. */

static nvmlReturn_t start(const char *function) {
    nvmlReturn_t code;
    if (!getenv("FAKE_NVML_SCENARIO") || !reload()) return 9; /* no scenario: as on a machine without a driver */
    if ((code = enter_raw(&machine, "init", function))) return code;
    code = (nvmlReturn_t)number_or(&machine, "init", 0);
    if (!code) initialised++;
    return code;
}
nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return start(__func__); }
nvmlReturn_t nvmlInit_v2(void) { return start(__func__); }
nvmlReturn_t nvmlInit(void) { return start(__func__); }
nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t code;
    if (!initialised) return UNINITIALIZED;
    if ((code = enter_raw(&machine, "shutdown", __func__))) return code;
    initialised--;
    return OK;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 8: return "Insufficient External Power";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 11: return "Interrupt Request Issue";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 14: return "Corrupted infoROM";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch";
    case 19: return "In use by another client";
    case 20: return "Insufficient Memory";
    case 21: return "No data";
    case 22: return "The requested vgpu operation is not available on target device, becasue ECC is enabled";
    case 23: return "Insufficient Resources";
    case 24: return "The requested frequency is not supported";
    case 25: return "The provided version is invalid/unsupported";
    case 26: return "The requested functionality has been deprecated";
    case 27: return "The system is not ready for the request";
    case 28: return "No GPUs were found";
    case 29: return "Resource not in correct state to perform requested operation";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(&machine, "driver_version"); return string(&machine, "driver_version", out, size); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned size) { ENTER(&machine, "nvml_version"); return string(&machine, "nvml_version", out, size); }
static nvmlReturn_t cuda_version(int *out, const char *function) {
    long long value;
    nvmlReturn_t code = enter(&machine, "cuda_version", function);
    if (!code && !(code = number(&machine, "cuda_version", &value))) *out = (int)value;
    return code;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(out, __func__); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda_version(out, __func__); }
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    char key[64];
    const char *name;
    ENTER(&machine, "process_name");
    snprintf(key, sizeof key, "process.%u.name", pid);
    if (!(name = text_of(&machine, key))) return NOT_FOUND;
    snprintf(out, size, "%s", name);
    return OK;
}

/* ---- handles: the index that a client gives skips the GPUs that the driver no longer shows ------------------- */

static int installed(void) {
    long long count = number_or(&machine, "count", 0);
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : (int)count;
}
static int is_hidden(int gpu) { return number_or(&gpus[gpu], "hidden", 0) != 0; }
static int gpu_at(int index) {
    for (int gpu = 0; gpu < installed(); gpu++)
        if (!is_hidden(gpu) && index-- == 0) return gpu;
    return -1;
}
static int index_of(int wanted) {
    int index = 0;
    for (int gpu = 0; gpu < wanted; gpu++) index += !is_hidden(gpu);
    return index;
}

static nvmlReturn_t device_count(unsigned *out, const char *function) {
    nvmlReturn_t code = enter(&machine, "count", function);
    if (code) return code;
    for (*out = 0; gpu_at((int)*out) >= 0;) ++*out;
    return OK;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) { return device_count(out, __func__); }
nvmlReturn_t nvmlDeviceGetCount(unsigned *out) { return device_count(out, __func__); }

static nvmlReturn_t handle(int gpu, nvmlDevice_t *out, const char *function) {
    nvmlReturn_t code;
    if (gpu < 0 || gpu >= installed() || is_hidden(gpu)) return NOT_FOUND;
    if ((code = enter(&gpus[gpu], "handle", function))) return code;
    *out = &gpus[gpu];
    return OK;
}
static nvmlReturn_t handle_at(unsigned index, nvmlDevice_t *out, const char *function) {
    int gpu;
    if (!initialised) return UNINITIALIZED;
    gpu = reload() && index < MAX_GPUS ? gpu_at((int)index) : -1;
    return gpu < 0 ? INVALID_ARGUMENT : handle(gpu, out, function);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) { return handle_at(index, out, __func__); }
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out) { return handle_at(index, out, __func__); }

static int same_address(const char *a, const char *b) { /* the domain may have four or eight digits */
    unsigned domain[2], bus[2], slot[2];
    return sscanf(a, "%x:%x:%x", &domain[0], &bus[0], &slot[0]) == 3 && sscanf(b, "%x:%x:%x", &domain[1], &bus[1], &slot[1]) == 3 &&
           domain[0] == domain[1] && bus[0] == bus[1] && slot[0] == slot[1];
}
static nvmlReturn_t handle_with(const char *key, const char *text, int is_address, nvmlDevice_t *out, const char *function) {
    if (!initialised) return UNINITIALIZED;
    if (!reload() || !text) return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < installed(); gpu++) {
        const char *value = text_of(&gpus[gpu], key);
        if (value && (is_address ? same_address(value, text) : !strcmp(value, text))) return handle(gpu, out, function);
        for (int mig = 0; !is_address && mig < MAX_MIG; mig++)
            if ((value = text_of(&migs[gpu][mig], key)) && !strcmp(value, text)) { *out = &migs[gpu][mig]; return OK; }
    }
    return NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) { return handle_with("uuid", uuid, 0, out, __func__); }
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) { return handle_with("serial", serial, 0, out, __func__); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out) { return handle_with("pci.bus_id", id, 1, out, __func__); }
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *out) { return handle_with("pci.bus_id", id, 1, out, __func__); }

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out) {
    ENTER(device, "identity");
    *out = (unsigned)(device->mig >= 0 ? device->mig : index_of(device->gpu));
    return OK;
}

/* ---- identity ------------------------------------------------------------------------------------------------ */

typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } pci_t;
static nvmlReturn_t pci_info(nvmlDevice_t device, pci_t *out, const char *function) {
    nvmlReturn_t code = enter(device, "identity", function);
    const char *address;
    if (code) return code;
    const device_t whole = {device->gpu, -1};
    address = text_of(&whole, "pci.bus_id");
    memset(out, 0, sizeof *out);
    if (!address || sscanf(address, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) return UNKNOWN;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0x1f);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    out->device_id = (unsigned)number_or(&whole, "pci.device_id", 0);
    out->subsystem_id = (unsigned)number_or(&whole, "pci.subsystem_id", 0);
    return OK;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, pci_t *out) { return pci_info(device, out, __func__); }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, pci_t *out) { /* the older struct ends before bus_id */
    pci_t full;
    nvmlReturn_t code = pci_info(device, &full, __func__);
    if (!code) memcpy(out, &full, 36);
    return code;
}
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, pci_t *out) {
    pci_t full;
    nvmlReturn_t code = pci_info(device, &full, __func__);
    if (!code) memcpy(out, &full, 32);
    return code;
}
typedef struct { unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class; char bus_id[32]; } pci_ext_t;
nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, pci_ext_t *out) {
    pci_t full;
    nvmlReturn_t code = pci_info(device, &full, __func__);
    if (code) return code;
    out->domain = full.domain, out->bus = full.bus, out->device = full.device;
    out->device_id = full.device_id, out->subsystem_id = full.subsystem_id;
    out->base_class = 3, out->sub_class = (unsigned)number_or(device, "pci.sub_class", 2);
    memcpy(out->bus_id, full.bus_id, sizeof out->bus_id);
    return OK;
}

ONE_TEXT(nvmlDeviceGetName, "name", "name")
ONE_TEXT(nvmlDeviceGetUUID, "identity", "uuid")
ONE_TEXT(nvmlDeviceGetSerial, "serial", "serial")
ONE_TEXT(nvmlDeviceGetBoardPartNumber, "board_part", "board_part")
ONE_TEXT(nvmlDeviceGetVbiosVersion, "vbios", "vbios")
ONE_TEXT(nvmlDeviceGetInforomImageVersion, "inforom", "inforom.image")
ONE_UINT(nvmlDeviceGetMinorNumber, "identity", "minor")
ONE_UINT(nvmlDeviceGetArchitecture, "arch", "arch")
ONE_UINT(nvmlDeviceGetBrand, "brand", "brand")
ONE_UINT(nvmlDeviceGetModuleId, "module_id", "module_id")
ONE_UINT(nvmlDeviceGetBoardId, "board_id", "board_id")
ONE_UINT(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board", "multi_gpu_board")
ONE_UINT(nvmlDeviceGetNumGpuCores, "cores", "cores")
ONE_UINT(nvmlDeviceGetMemoryBusWidth, "bus_width", "bus_width")
ONE_UINT(nvmlDeviceGetNumaNodeId, "numa", "numa")
ONE_UINT(nvmlDeviceGetBusType, "bus_type", "bus_type")
ONE_UINT(nvmlDeviceGetIrqNum, "irq", "irq")
nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned object, char *out, unsigned size) {
    static const char *const keys[] = {"inforom.oem", "inforom.ecc", "inforom.pwr", "inforom.den"};
    ENTER(device, "inforom");
    return object > 3 ? INVALID_ARGUMENT : string(device, keys[object], out, size);
}
nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "inforom");
    if (number_or(device, "inforom.corrupt", 0)) return CORRUPTED_INFOROM;
    if (!(code = number(device, "inforom.checksum", &value))) *out = (unsigned)value;
    return code;
}
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    ENTER(device, "validate_inforom");
    if (number_or(device, "inforom.corrupt", 0)) return CORRUPTED_INFOROM;
    return text_of(device, "inforom.image") ? OK : NOT_SUPPORTED;
}
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    ENTER(device, "gsp");
    return string(device, "gsp.version", out, 64);
}
TWO_UINT(nvmlDeviceGetGspFirmwareMode, "gsp", "gsp.mode", "gsp.default")
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    const char *value;
    ENTER(device, "cc");
    value = text_of(device, "cc");
    if (refusal(value)) return refusal(value);
    return sscanf(value, "%d.%d", major, minor) == 2 ? OK : UNKNOWN;
}

/* Affinity: "affinity.cpus" and "affinity.nodes" are lists as "0-31,64-95". */
static nvmlReturn_t set_bits(const device_t *device, const char *key, unsigned words, uint64_t *out) {
    const char *text = text_of(device, key);
    if (refusal(text)) return refusal(text);
    memset(out, 0, words * sizeof *out);
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (; first <= last && first < words * 64ul; first++) out[first / 64] |= 1ull << first % 64;
        text = *end ? end + 1 : end;
    }
    return OK;
}
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, uint64_t *out) {
    ENTER(device, "affinity");
    return set_bits(device, "affinity.cpus", words, out);
}
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned words, uint64_t *out, unsigned scope) {
    (void)scope;
    ENTER(device, "affinity");
    return set_bits(device, "affinity.cpus", words, out);
}
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, uint64_t *out, unsigned scope) {
    (void)scope;
    ENTER(device, "affinity");
    return set_bits(device, "affinity.nodes", words, out);
}
