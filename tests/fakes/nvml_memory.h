/* Memory, ECC, page retirement, row remapping, MIG. */

/* Sizes in the scenario are MiB: total = used + reserved + free. */
static nvmlReturn_t sizes(const device_t *device, unsigned long long *total, unsigned long long *reserved, unsigned long long *used) {
    long long value;
    nvmlReturn_t code = number(device, "memory.total", &value);
    if (code) return code;
    *total = (unsigned long long)value << 20;
    *reserved = (unsigned long long)number_or(device, "memory.reserved", 0) << 20;
    *used = (unsigned long long)number_or(device, "memory.used", 0) << 20;
    return OK;
}
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_t *out) {
    unsigned long long reserved;
    nvmlReturn_t code;
    ENTER(device, "memory");
    if ((code = sizes(device, &out->total, &reserved, &out->used))) return code;
    out->used += reserved; /* the first version of this call counts what the driver keeps as used */
    out->free = out->total > out->used ? out->total - out->used : 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_v2_t *out) {
    nvmlReturn_t code;
    ENTER(device, "memory");
    if (out->version != 0x2000028) return VERSION_MISMATCH;
    if ((code = sizes(device, &out->total, &out->reserved, &out->used))) return code;
    out->free = out->total > out->used + out->reserved ? out->total - out->used - out->reserved : 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, memory_t *out) {
    long long total;
    nvmlReturn_t code;
    ENTER(device, "bar1");
    if ((code = number(device, "bar1.total", &total))) return code;
    out->total = (unsigned long long)total << 20;
    out->used = (unsigned long long)number_or(device, "bar1.used", 1) << 20;
    out->free = out->total - out->used;
    return OK;
}
nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device, unsigned long long *out) {
    ENTER(device, "conf_compute");
    if (!text_of(device, "conf_compute.protected")) return NOT_SUPPORTED;
    out[0] = (unsigned long long)number_or(device, "conf_compute.protected", 0), out[1] = 0;
    return OK;
}

/* ---- ECC: "ecc.ue.vol.dram" is a counter by kind (ce, ue), life (vol, agg) and place; the total is their sum unless
 *      "ecc.ue.vol" says otherwise. "ecc.locations" lists the places that this architecture counts. ------------- */

static const char *const ecc_places[] = {"l1", "l2", "dram", "reg", "tex", "shm", "cbu", "sram"};

static int counts_at(const device_t *device, const char *place) {
    const char *list = text_of(device, "ecc.locations"), *found = list ? strstr(list, place) : NULL;
    size_t length = strlen(place);
    return found && (found == list || found[-1] == ',') && (found[length] == 0 || found[length] == ',');
}
static nvmlReturn_t ecc_on(const device_t *device) {
    long long mode;
    nvmlReturn_t code = number(device, "ecc.mode", &mode);
    return code ? code : mode ? OK : NOT_SUPPORTED;
}
static nvmlReturn_t ecc_at(const device_t *device, unsigned kind, unsigned life, const char *place, unsigned long long *out) {
    char key[48];
    long long value = 0;
    nvmlReturn_t code = ecc_on(device);
    if (code) return code;
    if (!counts_at(device, place)) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "ecc.%s.%s.%s", kind ? "ue" : "ce", life ? "agg" : "vol", place);
    if (text_of(device, key) && (code = number(device, key, &value))) return code;
    *out = (unsigned long long)value;
    return OK;
}
static nvmlReturn_t ecc_total(const device_t *device, unsigned kind, unsigned life, unsigned long long *out) {
    char key[48];
    long long value;
    nvmlReturn_t code = ecc_on(device);
    if (code) return code;
    snprintf(key, sizeof key, "ecc.%s.%s", kind ? "ue" : "ce", life ? "agg" : "vol");
    if (text_of(device, key)) {
        if (!(code = number(device, key, &value))) *out = (unsigned long long)value;
        return code;
    }
    *out = 0;
    for (unsigned place = 0; place < 8; place++) {
        unsigned long long part;
        if (!ecc_at(device, kind, life, ecc_places[place], &part)) *out += part;
    }
    return OK;
}
TWO_UINT(nvmlDeviceGetEccMode, "ecc_mode", "ecc.mode", "ecc.pending")
ONE_UINT(nvmlDeviceGetDefaultEccMode, "ecc_mode", "ecc.default")
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned kind, unsigned life, unsigned long long *out) {
    ENTER(device, "ecc");
    return kind > 1 || life > 1 ? INVALID_ARGUMENT : ecc_total(device, kind, life, out);
}
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned kind, unsigned life, unsigned place, unsigned long long *out) {
    ENTER(device, "ecc_location");
    return kind > 1 || life > 1 || place > 7 ? INVALID_ARGUMENT : ecc_at(device, kind, life, ecc_places[place], out);
}
nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned kind, unsigned life, unsigned long long *out) {
    nvmlReturn_t code;
    ENTER(device, "ecc_location");
    if ((code = ecc_on(device))) return code;
    memset(out, 0, 4 * sizeof *out);
    for (unsigned place = 0; place < 4; place++) ecc_at(device, kind, life, ecc_places[place], &out[place]);
    return OK;
}
typedef struct {
    unsigned version;
    unsigned long long agg_parity, agg_secded, agg_ce, vol_parity, vol_secded, vol_ce, l2, sm, pcie, mcu, other;
    unsigned threshold;
} sram_t;
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, sram_t *out) {
    unsigned version;
    nvmlReturn_t code;
    ENTER(device, "sram");
    version = out->version;
    if (version != 0x1000068) return VERSION_MISMATCH;
    if ((code = ecc_on(device))) return code;
    if (!counts_at(device, "sram") || number_or(device, "ecc.sram.status", 1) == 0) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->version = version;
    ecc_at(device, 1, 1, "sram", &out->agg_secded);
    ecc_at(device, 1, 0, "sram", &out->vol_secded);
    ecc_at(device, 0, 1, "sram", &out->agg_ce);
    ecc_at(device, 0, 0, "sram", &out->vol_ce);
    out->agg_parity = (unsigned long long)number_or(device, "ecc.sram.parity.agg", 0); /* part of the uncorrectable */
    out->vol_parity = (unsigned long long)number_or(device, "ecc.sram.parity.vol", 0);
    out->agg_secded -= out->agg_parity < out->agg_secded ? out->agg_parity : out->agg_secded;
    out->vol_secded -= out->vol_parity < out->vol_secded ? out->vol_parity : out->vol_secded;
    out->l2 = (unsigned long long)number_or(device, "ecc.sram.l2", (long long)(out->agg_parity + out->agg_secded));
    out->sm = (unsigned long long)number_or(device, "ecc.sram.sm", 0);
    out->pcie = (unsigned long long)number_or(device, "ecc.sram.pcie", 0);
    out->mcu = (unsigned long long)number_or(device, "ecc.sram.mcu", 0);
    out->other = (unsigned long long)number_or(device, "ecc.sram.other", 0);
    out->threshold = (unsigned)number_or(device, "ecc.sram.threshold", 0);
    return OK;
}

/* ---- page retirement (to Volta and Turing) and row remapping (from Ampere) ----------------------------------- */

static nvmlReturn_t retired(nvmlDevice_t device, unsigned cause, unsigned *count, unsigned long long *pages, unsigned long long *times, const char *function) {
    long long value;
    nvmlReturn_t code = enter(device, "retired", function);
    if (code) return code;
    if ((code = number(device, cause ? "retired.dbe" : "retired.sbe", &value))) return code;
    if (!pages || *count < (unsigned)value) { *count = (unsigned)value; return value ? INSUFFICIENT_SIZE : OK; }
    *count = (unsigned)value;
    for (long long page = 0; page < value; page++) {
        pages[page] = 0x1a2b0000ull + (unsigned long long)page * 0x1000 + cause * 0x100000ull;
        if (times) times[page] = 1760000000000000ull + (unsigned long long)page * 1000000ull;
    }
    return OK;
}
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count, unsigned long long *pages) { return retired(device, cause, count, pages, NULL, __func__); }
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count, unsigned long long *pages, unsigned long long *times) { return retired(device, cause, count, pages, times, __func__); }
ONE_UINT(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", "retired.pending")

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "remap");
    if ((code = number(device, "remap.corr", &value))) return code;
    *corrected = (unsigned)value;
    *uncorrected = (unsigned)number_or(device, "remap.unc", 0);
    *pending = (unsigned)number_or(device, "remap.pending", 0);
    *failed = (unsigned)number_or(device, "remap.failed", 0);
    return OK;
}
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, unsigned *out) { /* max, high, partial, low, none */
    const char *value;
    ENTER(device, "remap_histogram");
    value = text_of(device, "remap.histogram");
    if (refusal(value)) return refusal(value);
    return sscanf(value, "%u,%u,%u,%u,%u", out, out + 1, out + 2, out + 3, out + 4) == 5 ? OK : UNKNOWN;
}
typedef struct { unsigned version, channel, tpc; } repair_t;
nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, repair_t *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "repair");
    if (out->version != 0x100000C) return VERSION_MISMATCH;
    if ((code = number(device, "repair.channel", &value))) return code;
    out->channel = (unsigned)value;
    out->tpc = (unsigned)number_or(device, "repair.tpc", 0);
    return OK;
}

/* ---- MIG: devices "N.mig.M.*" exist where they have a uuid ---------------------------------------------------- */

TWO_UINT(nvmlDeviceGetMigMode, "mig", "mig.mode", "mig.pending")
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out) {
    ENTER(device, "mig");
    *out = (unsigned)number_or(device, "mig.max", 0);
    return OK;
}
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out) {
    ENTER(device, "mig");
    if (device->mig >= 0 || index >= MAX_MIG) return INVALID_ARGUMENT;
    if (!text_of(&migs[device->gpu][index], "uuid")) return NOT_FOUND;
    *out = &migs[device->gpu][index];
    return OK;
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out) {
    ENTER(device, "identity");
    *out = device->mig >= 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
    ENTER(device, "identity");
    if (device->mig < 0) return INVALID_ARGUMENT;
    *out = &gpus[device->gpu];
    return OK;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *out) {
    ENTER(device, "mig");
    if (device->mig < 0) return NOT_SUPPORTED;
    *out = (unsigned)number_or(device, "gi", device->mig);
    return OK;
}
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *out) {
    ENTER(device, "mig");
    if (device->mig < 0) return NOT_SUPPORTED;
    *out = (unsigned)number_or(device, "ci", 0);
    return OK;
}
typedef struct { unsigned sm, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices; unsigned long long memory_mb; } attributes_t;
static nvmlReturn_t attributes(nvmlDevice_t device, attributes_t *out, const char *function) {
    nvmlReturn_t code = enter(device, "attributes", function);
    if (code) return code;
    if (device->mig < 0) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->sm = (unsigned)number_or(device, "sm", 14);
    out->copy = 1;
    out->gi_slices = (unsigned)number_or(device, "gi_slices", 1);
    out->ci_slices = (unsigned)number_or(device, "ci_slices", (long long)out->gi_slices);
    out->memory_mb = (unsigned long long)number_or(device, "memory.total", 0);
    return OK;
}
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, attributes_t *out) { return attributes(device, out, __func__); }
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, attributes_t *out) { return attributes(device, out, __func__); }
