/* What a GPU is doing: load, heat, power, clocks, modes. */

typedef struct { unsigned gpu, memory; } utilization_t;
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, utilization_t *out) {
    long long gpu, memory;
    nvmlReturn_t code;
    ENTER(device, "util");
    if ((code = number(device, "util.gpu", &gpu)) || (code = number(device, "util.memory", &memory))) return code;
    out->gpu = (unsigned)gpu, out->memory = (unsigned)memory;
    return OK;
}
#define SAMPLED(function, key)                                                     \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *out, unsigned *period) {  \
        long long value;                                                           \
        nvmlReturn_t code;                                                         \
        ENTER(device, key);                                                        \
        if ((code = number(device, key, &value))) return code;                     \
        *out = (unsigned)value, *period = 167000;                                  \
        return OK;                                                                 \
    }
SAMPLED(nvmlDeviceGetEncoderUtilization, "util.encoder")
SAMPLED(nvmlDeviceGetDecoderUtilization, "util.decoder")
SAMPLED(nvmlDeviceGetJpgUtilization, "util.jpeg")
SAMPLED(nvmlDeviceGetOfaUtilization, "util.ofa")

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "temp");
    if (sensor) return INVALID_ARGUMENT;
    if (!(code = number(device, "temp", &value))) *out = (unsigned)value;
    return code;
}
typedef struct { unsigned version, sensor; int temperature; } temperature_t;
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, temperature_t *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "temp");
    if (out->version != 0x100000C) return VERSION_MISMATCH;
    if (!(code = number(device, "temp", &value))) out->temperature = (int)value;
    return code;
}
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned which, unsigned *out) {
    static const char *const keys[] = {"temp.shutdown", "temp.slowdown", "temp.mem_max", "temp.gpu_max", "temp.acoustic_min",
                                       "temp.acoustic_now", "temp.acoustic_max", "temp.gps"};
    long long value;
    nvmlReturn_t code;
    ENTER(device, "temp_threshold");
    if (which > 7) return INVALID_ARGUMENT;
    if (!(code = number(device, keys[which], &value))) *out = (unsigned)value;
    return code;
}
typedef struct { unsigned version; int value; } versioned_int_t;
#define ONE_VERSIONED(function, call, key)                                         \
    nvmlReturn_t function(nvmlDevice_t device, versioned_int_t *out) {             \
        long long value;                                                           \
        nvmlReturn_t code;                                                         \
        ENTER(device, call);                                                       \
        if (out->version != 0x1000008) return VERSION_MISMATCH;                    \
        if (!(code = number(device, key, &value))) out->value = (int)value;        \
        return code;                                                               \
    }
ONE_VERSIONED(nvmlDeviceGetMarginTemperature, "margin", "temp.margin")
ONE_VERSIONED(nvmlDeviceGetAddressingMode, "addressing_mode", "addressing_mode")
ONE_VERSIONED(nvmlDeviceGetUnrepairableMemoryFlag_v1, "unrepairable", "unrepairable_memory")
ONE_VERSIONED(nvmlDeviceGetCapabilities, "capabilities", "capabilities")

ONE_UINT(nvmlDeviceGetNumFans, "fan", "fan.count")
static nvmlReturn_t fan_speed(nvmlDevice_t device, unsigned fan, const char *base, unsigned *out) {
    char key[48];
    long long value;
    nvmlReturn_t code;
    if (fan >= (unsigned)number_or(device, "fan.count", 0)) return number_or(device, "fan.count", 0) ? INVALID_ARGUMENT : NOT_SUPPORTED;
    snprintf(key, sizeof key, "fan.%u.%s", fan, base);
    code = number(device, key, &value);
    if (code == NOT_SUPPORTED && !text_of(device, key)) {
        snprintf(key, sizeof key, "fan.%s", base);
        code = number(device, key, &value);
    }
    if (!code) *out = (unsigned)value;
    return code;
}
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *out) { ENTER(device, "fan"); return fan_speed(device, 0, "speed", out); }
nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *out) { ENTER(device, "fan"); return fan_speed(device, fan, "speed", out); }
nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned fan, unsigned *out) { ENTER(device, "fan"); return fan_speed(device, fan, "target", out); }
typedef struct { unsigned version, fan, speed; } fan_rpm_t;
nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device, fan_rpm_t *out) { ENTER(device, "fan"); return fan_speed(device, out->fan, "rpm", &out->speed); }

/* Power in mW, energy in mJ, as NVML has them. */
ONE_UINT(nvmlDeviceGetPowerUsage, "power", "power")
ONE_UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit", "power.limit")
ONE_UINT(nvmlDeviceGetPowerManagementLimit, "power_management", "power.requested")
ONE_UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_default", "power.default")
ONE_UINT(nvmlDeviceGetPowerManagementMode, "power_mode", "power.mode")
ONE_UINT(nvmlDeviceGetPowerState, "pstate", "pstate")
ONE_UINT(nvmlDeviceGetPowerSource, "power_source", "power.source")
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *low, unsigned *high) {
    long long min, max;
    nvmlReturn_t code;
    ENTER(device, "power_constraints");
    if ((code = number(device, "power.min", &min)) || (code = number(device, "power.max", &max))) return code;
    *low = (unsigned)min, *high = (unsigned)max;
    return OK;
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *out) {
    long long value;
    nvmlReturn_t code;
    ENTER(device, "energy");
    if (!(code = number(device, "energy", &value))) *out = (unsigned long long)value;
    return code;
}

/* Clocks in MHz. */
static nvmlReturn_t clock_of(nvmlDevice_t device, const char *call, const char *group, unsigned type, unsigned *out, const char *function) {
    static const char *const names[] = {"graphics", "sm", "mem", "video"};
    char key[64];
    long long value;
    nvmlReturn_t code = enter(device, call, function);
    if (code) return code;
    if (type > 3) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s.%s", group, names[type]);
    if (!(code = number(device, key, &value))) *out = (unsigned)value;
    return code;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *out) { return clock_of(device, "clock", "clock", type, out, __func__); }
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *out) { return clock_of(device, "max_clock", "clock.max", type, out, __func__); }
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *out) { return clock_of(device, "app_clock", "clock.app", type, out, __func__); }
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *out) { return clock_of(device, "app_clock", "clock.app_default", type, out, __func__); }
nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned type, unsigned *out) { return clock_of(device, "boost_clock", "clock.boost", type, out, __func__); }
nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *out) {
    static const char *const groups[] = {"clock", "clock.app", "clock.app_default", "clock.boost"};
    return id > 3 ? INVALID_ARGUMENT : clock_of(device, "clock", groups[id], type, out, __func__);
}

ONE_UINT(nvmlDeviceGetPerformanceState, "pstate", "pstate")
ONE_UINT(nvmlDeviceGetPersistenceMode, "persistence", "persistence")
ONE_UINT(nvmlDeviceGetComputeMode, "compute_mode", "compute_mode")
ONE_UINT(nvmlDeviceGetDisplayActive, "display", "display.active")
ONE_UINT(nvmlDeviceGetDisplayMode, "display", "display.mode")
TWO_UINT(nvmlDeviceGetDriverModel_v2, "driver_model", "driver_model", "driver_model")
TWO_UINT(nvmlDeviceGetDriverModel, "driver_model", "driver_model", "driver_model")
ONE_UINT(nvmlDeviceGetVirtualizationMode, "virtualization", "virtualization")
ONE_UINT(nvmlDeviceGetHostVgpuMode, "virtualization", "virtualization.host")
ONE_UINT(nvmlDeviceGetC2cModeInfoV, "c2c", "c2c.enabled")
TWO_UINT(nvmlDeviceGetAutoBoostedClocksEnabled, "auto_boost", "auto_boost", "auto_boost.default")
TWO_UINT(nvmlDeviceGetGpuOperationMode, "gom", "gom", "gom.pending")

/* Throttle reasons, under their old and their new name. */
static nvmlReturn_t reasons(nvmlDevice_t device, const char *key, unsigned long long *out, const char *function) {
    long long value;
    nvmlReturn_t code = enter(device, "throttle", function);
    if (!code && !(code = number(device, key, &value))) *out = (unsigned long long)value;
    return code;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *out) { return reasons(device, "throttle", out, __func__); }
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *out) { return reasons(device, "throttle", out, __func__); }
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *out) { return reasons(device, "throttle.supported", out, __func__); }
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *out) { return reasons(device, "throttle.supported", out, __func__); }

typedef struct { unsigned long long reference, violation; } violation_t;
static const char *violation_key(unsigned policy) {
    static const char *const keys[] = {"power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"};
    return policy < 6 ? keys[policy] : policy == 10 ? "app_clocks" : policy == 11 ? "base_clocks" : NULL;
}
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy, violation_t *out) {
    char key[48];
    long long value;
    struct timespec now;
    nvmlReturn_t code;
    ENTER(device, "violation");
    if (!violation_key(policy)) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "violation.%s", violation_key(policy));
    if ((code = number(device, key, &value))) return code; /* nanoseconds */
    clock_gettime(CLOCK_REALTIME, &now);
    out->reference = (unsigned long long)now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000;
    out->violation = (unsigned long long)value;
    return OK;
}

/* vGPU guests: the licence. */
typedef struct { unsigned year; unsigned short month, day, hour, min, sec; unsigned char status; } expiry_t;
typedef struct { unsigned code, state; char info[128], product[128]; unsigned enabled; expiry_t expiry; } feature_t;
typedef struct { int supported; unsigned count; feature_t features[3]; } licence_t;
nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, licence_t *out) {
    ENTER(device, "licence");
    memset(out, 0, sizeof *out);
    if (!text_of(device, "vgpu.licensed")) return OK; /* not a vGPU: nothing to license */
    out->supported = 1, out->count = 1;
    out->features[0].code = 1, out->features[0].enabled = 1;
    out->features[0].state = (unsigned)number_or(device, "vgpu.licensed", 0);
    snprintf(out->features[0].product, 128, "%s", text_of(device, "vgpu.product") ? text_of(device, "vgpu.product") : "");
    snprintf(out->features[0].info, 128, "%s", text_of(device, "vgpu.licence_info") ? text_of(device, "vgpu.licence_info") : "");
    out->features[0].expiry.status = (unsigned char)number_or(device, "vgpu.expiry_status", 0);
    return OK;
}
