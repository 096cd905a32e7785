/* Processes: "proc.compute" (also graphics, mps) is a list of pid:bytes[:gi[:ci]]; bytes may be N/A.
 * "proc.util" is a list of pid:sm:mem:enc:dec, "accounting.pids" of pid:gpu%:mem%:bytes:ms:start_us:running. */

#define NOT_AVAILABLE 0xffffffffffffffffull
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } process_t;
typedef struct { unsigned pid; unsigned long long bytes; } process_v1_t;

static unsigned processes_in(const char *list, process_t *out, unsigned room) {
    unsigned found = 0;
    while (list && *list && found < room) {
        char *end;
        process_t process = {(unsigned)strtoul(list, &end, 10), NOT_AVAILABLE, 0xffffffffu, 0xffffffffu};
        if (*end == ':' && strncasecmp(end + 1, "N/A", 3)) process.bytes = strtoull(end + 1, &end, 10);
        else if (*end == ':') end += 4;
        if (*end == ':') process.gi = (unsigned)strtoul(end + 1, &end, 10);
        if (*end == ':') process.ci = (unsigned)strtoul(end + 1, &end, 10);
        out[found++] = process;
        list = *end ? end + 1 : end;
    }
    return found;
}
static nvmlReturn_t processes(nvmlDevice_t device, const char *kind, unsigned *count, void *out, int version, const char *function) {
    char key[32];
    process_t all[256];
    const char *list;
    unsigned found, room;
    nvmlReturn_t code = enter(device, "processes", function);
    if (code) return code;
    snprintf(key, sizeof key, "proc.%s", kind);
    list = text_of(device, key);
    if (list && list[0] == '!') return refusal(list);
    if (list && !strcasecmp(list, "N/A")) return NOT_SUPPORTED;
    found = processes_in(list, all, 256);
    room = *count;
    *count = found;
    if (!found) return OK;
    if (room < found || !out) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < found; at++) {
        if (version > 1) ((process_t *)out)[at] = all[at];
        else ((process_v1_t *)out)[at] = (process_v1_t){all[at].pid, all[at].bytes};
    }
    return OK;
}
#define PROCESSES(function, kind, version) \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *count, void *out) { return processes(device, kind, count, out, version, __func__); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, "compute", 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute", 2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute", 3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics", 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", 3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "mps", 1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", 2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", 3)

typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; unsigned long long protected_bytes; } detail_t;
typedef struct { unsigned version, mode, count; detail_t *details; } detail_list_t;
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, detail_list_t *out) {
    static const char *const kinds[] = {"proc.compute", "proc.graphics", "proc.mps"};
    process_t all[256];
    unsigned found, room;
    ENTER(device, "processes");
    if (out->version != 0x1000018) return VERSION_MISMATCH;
    if (out->mode > 2) return INVALID_ARGUMENT;
    found = processes_in(text_of(device, kinds[out->mode]), all, 256);
    room = out->count;
    out->count = found;
    if (!found) return OK;
    if (room < found || !out->details) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < found; at++)
        out->details[at] = (detail_t){all[at].pid, all[at].bytes, all[at].gi, all[at].ci, NOT_AVAILABLE};
    return OK;
}

typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } sample_t;
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, sample_t *out, unsigned *count, unsigned long long since) {
    const char *list;
    unsigned found = 0, room = *count;
    struct timespec now;
    (void)since;
    ENTER(device, "process_util");
    clock_gettime(CLOCK_REALTIME, &now);
    if (!(list = text_of(device, "proc.util")) || !*list) return NOT_FOUND;
    for (const char *comma = list; comma; comma = strchr(comma + 1, ',')) found++;
    *count = found;
    if (!out || room < found) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < found; at++) {
        sample_t sample = {0};
        sscanf(list, "%u:%u:%u:%u:%u", &sample.pid, &sample.sm, &sample.memory, &sample.encoder, &sample.decoder);
        sample.time_us = (unsigned long long)now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000;
        out[at] = sample;
        list = strchr(list, ',') ? strchr(list, ',') + 1 : "";
    }
    return OK;
}

/* ---- accounting of ended processes ---------------------------------------------------------------------------- */

ONE_UINT(nvmlDeviceGetAccountingMode, "accounting", "accounting.mode")
ONE_UINT(nvmlDeviceGetAccountingBufferSize, "accounting", "accounting.buffer")
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids) {
    const char *list;
    unsigned found = 0, room = *count;
    ENTER(device, "accounting");
    list = text_of(device, "accounting.pids");
    if (!number_or(device, "accounting.mode", 0)) return NOT_SUPPORTED;
    for (const char *at = list; at && *at; found++) {
        if (pids && found < room) pids[found] = (unsigned)strtoul(at, NULL, 10);
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    }
    *count = found;
    return found > room || (found && !pids) ? INSUFFICIENT_SIZE : OK;
}
typedef struct { unsigned gpu, memory; unsigned long long max_bytes, time_ms, start_us; unsigned running, reserved[5]; } accounting_t;
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, accounting_t *out) {
    ENTER(device, "accounting");
    if (!number_or(device, "accounting.mode", 0)) return NOT_SUPPORTED;
    for (const char *at = text_of(device, "accounting.pids"); at && *at;) {
        unsigned this_pid;
        memset(out, 0, sizeof *out);
        if (sscanf(at, "%u:%u:%u:%llu:%llu:%llu:%u", &this_pid, &out->gpu, &out->memory, &out->max_bytes, &out->time_ms,
                   &out->start_us, &out->running) >= 1 && this_pid == pid)
            return OK;
        at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    }
    return NOT_FOUND;
}
