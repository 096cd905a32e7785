/* A libnvidia-ml.so.1 that answers from a scenario file (see README.md beside it) and can refuse, hang and count.
 *
 * Signatures and layouts are those that nvidia-ml-py (BSD) calls. Functions that stand here answer from the scenario;
 * all other names of nvml_symbols.tsv become weak stubs that return NOT_SUPPORTED. */
#include "nvml_scenario.h"

static device_t gpus[MAX_GPUS];
static device_t migs[MAX_GPUS][MAX_MIG];
static const device_t machine = {-1, -1};
static int initialised;

__attribute__((constructor)) static void number_devices(void) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        gpus[gpu] = (device_t){gpu, -1};
        for (int mig = 0; mig < MAX_MIG; mig++) migs[gpu][mig] = (device_t){gpu, mig};
    }
}

/* ---- what every call does first ---------------------------------------------------------------------------- */

static void trace(const char *call, const device_t *device) {
    const char *path = text_of(&machine, "trace");
    FILE *file = path && *path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%d %s %d\n", (int)getpid(), call, device ? device->gpu : -1);
    fclose(file);
}

/* Microseconds that the driver takes: measured values from public reports where there are any (README.md). */
static double cost_us(const char *call) {
    static const struct { const char *call; double us; } known[] = {
        {"init", 20000}, {"processes", 4500}, {"pcie_throughput", 20000}, {"fan", 137}, {"memory", 11.6}, {"util", 2.5}};
    char key[96];
    snprintf(key, sizeof key, "cost.%s", call);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].call, call)) return real_or(&machine, key, known[i].us);
    return real_or(&machine, key, 5);
}

static double hang_of(const device_t *device, const char *kind, const char *call) {
    char key[96];
    double seconds;
    snprintf(key, sizeof key, "%s.%s", kind, call);
    seconds = real_or(device, key, 0);
    return seconds > 0 || device == &machine ? seconds : real_or(&machine, key, 0);
}

static nvmlReturn_t error_of(const device_t *device, const char *call) {
    char key[96];
    snprintf(key, sizeof key, "err.%s", call);
    return (nvmlReturn_t)number_or(device, key, 0);
}

/* `call` is the short name of hang.* and err.*; the function's own name works too, and `any` means every call. */
static nvmlReturn_t enter_raw(const device_t *device, const char *call, const char *function) {
    const device_t whole = {device->gpu, -1}; /* faults are the GPU's, not its MIG devices' */
    double seconds;
    nvmlReturn_t code;
    if (!reload()) return UNINITIALIZED;
    trace(function, device);
    if (number_or(&machine, "cost", 0)) pass_seconds(cost_us(call) / 1e6);
    if ((seconds = hang_of(&whole, "hang", call)) > 0 || (seconds = hang_of(&whole, "hang", function)) > 0 ||
        (seconds = hang_of(&whole, "hang", "any")) > 0)
        hang(seconds);
    if ((code = error_of(&whole, call)) || (code = error_of(&whole, function))) return code;
    return OK;
}

static int is_identity(const char *call) { return !strcmp(call, "identity") || !strcmp(call, "handle"); }

static nvmlReturn_t enter(const device_t *device, const char *call, const char *function) {
    nvmlReturn_t code;
    if (!initialised) return UNINITIALIZED;
    if (!device) return INVALID_ARGUMENT;
    if ((code = enter_raw(device, call, function))) return code;
    if (device->gpu < 0) return OK;
    {
        const device_t whole = {device->gpu, -1};
        long long lost = number_or(&whole, "lost", 0); /* 2: lost after NVML took hold of it, what it cached still stands */
        if (lost && !(lost == 2 && is_identity(call))) return GPU_IS_LOST;
        if (number_or(&whole, "reset_required", 0) && !is_identity(call)) return RESET_REQUIRED;
        code = error_of(&whole, "any");
    }
    return code;
}

#define ENTER(device, call) do { nvmlReturn_t entered = enter(device, call, __func__); if (entered) return entered; } while (0)

#define ONE_UINT(function, call, key)                                              \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *out) {                    \
        long long value;                                                           \
        nvmlReturn_t code;                                                         \
        ENTER(device, call);                                                       \
        if (!out) return INVALID_ARGUMENT;                                         \
        if (!(code = number(device, key, &value))) *out = (unsigned)value;         \
        return code;                                                               \
    }
#define TWO_UINT(function, call, first_key, second_key)                            \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *first, unsigned *second) {\
        long long a, b;                                                            \
        nvmlReturn_t code;                                                         \
        ENTER(device, call);                                                       \
        if ((code = number(device, first_key, &a))) return code;                   \
        b = number_or(device, second_key, a);                                      \
        *first = (unsigned)a;                                                      \
        *second = (unsigned)b;                                                     \
        return OK;                                                                 \
    }
#define ONE_TEXT(function, call, key)                                              \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned size) {         \
        ENTER(device, call);                                                       \
        return string(device, key, out, size);                                     \
    }

#include "nvml_system.h"
#include "nvml_state.h"
#include "nvml_memory.h"
#include "nvml_links.h"
#include "nvml_processes.h"
#include "nvml_events.h"
#include "nvml_fields.h"

/* What the stubs of all other functions do. Their first argument is mostly a device, but not always. */
nvmlReturn_t fake_nvml_unsupported(const void *first, const char *function) {
    const device_t *device = &machine;
    nvmlReturn_t code;
    if ((const char *)first >= (const char *)gpus && (const char *)first < (const char *)(gpus + MAX_GPUS)) device = first;
    if ((const char *)first >= (const char *)migs && (const char *)first < (const char *)(migs + MAX_GPUS)) device = first;
    code = enter(device, function, function);
    return code ? code : NOT_SUPPORTED;
}
