/* nvmlDeviceGetFieldValues. A field answers from "field.ID" ("field.ID.SCOPE" for one link) where the scenario has it,
 * else from the key that the getter of the same value uses. */

typedef union { double real; unsigned uint; unsigned long ulong; unsigned long long ull; long long sll; int sint; } value_t;
typedef struct { unsigned id, scope; long long time_us, latency_us; unsigned type; nvmlReturn_t code; value_t value; } field_t;
enum { UINT = 1, ULL = 3, SINT = 5 };

typedef struct { unsigned id, type; const char *key; } mapping_t;
static const mapping_t plain_fields[] = {
    {1, UINT, "ecc.mode"}, {2, UINT, "ecc.pending"}, {29, ULL, "retired.sbe"}, {30, ULL, "retired.dbe"}, {31, UINT, "retired.pending"},
    {74, ULL, "violation.power"}, {75, ULL, "violation.thermal"}, {76, ULL, "violation.sync_boost"}, {77, ULL, "violation.board_limit"},
    {78, ULL, "violation.low_utilization"}, {79, ULL, "violation.reliability"}, {80, ULL, "violation.app_clocks"},
    {81, ULL, "violation.base_clocks"}, {82, UINT, "temp.memory"}, {83, ULL, "energy"}, {90, UINT, "nvlink.speed"}, {91, UINT, "nvlink.count"},
    {92, UINT, "retired.pending"}, {93, UINT, "retired.pending"}, {94, ULL, "pcie.replays"}, {95, ULL, "pcie.replay_rollover"},
    {142, UINT, "remap.corr"}, {143, UINT, "remap.unc"}, {144, UINT, "remap.pending"}, {145, UINT, "remap.failed"},
    {147, UINT, "nvlink.switch_links"}, {169, UINT, "pcie.l0_to_recovery"}, {170, UINT, "c2c.links"},
    {173, UINT, "pcie.correctable"}, {174, UINT, "pcie.naks_received"}, {175, UINT, "pcie.receiver_error"}, {176, UINT, "pcie.bad_tlp"},
    {177, UINT, "pcie.naks_sent"}, {178, UINT, "pcie.bad_dllp"}, {179, UINT, "pcie.non_fatal"}, {180, UINT, "pcie.fatal"},
    {181, UINT, "pcie.unsupported_req"}, {182, UINT, "pcie.lcrc"}, {183, UINT, "pcie.lane"},
    {185, UINT, "power.average"}, {186, UINT, "power"}, {187, UINT, "power.min"}, {188, UINT, "power.max"}, {189, UINT, "power.default"},
    {190, UINT, "power.limit"}, {191, ULL, "energy"}, {192, UINT, "power.requested"}, {193, SINT, "tlimit.shutdown"},
    {194, SINT, "tlimit.slowdown"}, {195, SINT, "tlimit.mem_max"}, {196, SINT, "tlimit.gpu_max"}, {197, ULL, "pcie.tx_bytes"},
    {198, ULL, "pcie.rx_bytes"}, {226, UINT, "reset_status"}, {227, UINT, "drain_and_reset"}, {230, UINT, "recovery_action"},
    {269, ULL, "violation.sw_thermal"}, {270, ULL, "violation.hw_thermal"}, {271, ULL, "violation.hw_power_brake"}};
/* Fields whose scope is a link. */
static const mapping_t link_fields[] = {
    {161, ULL, "replay"}, {162, ULL, "recovery"}, {163, ULL, "crc_flit"}, {164, UINT, "speed"}, {165, UINT, "state"}, {166, UINT, "version"},
    {167, UINT, "power_state"}, {201, ULL, "xmit_packets"}, {202, ULL, "xmit_bytes"}, {203, ULL, "rcv_packets"}, {204, ULL, "rcv_bytes"},
    {205, ULL, "vl15_dropped"}, {206, ULL, "malformed"}, {207, ULL, "buffer_overrun"}, {208, ULL, "rcv_errors"}, {209, ULL, "rcv_remote"},
    {210, ULL, "rcv_general"}, {211, ULL, "integrity"}, {212, ULL, "xmit_discards"}, {213, ULL, "recovery_successful"},
    {214, ULL, "recovery_failed"}, {215, ULL, "recovery_events"}, {216, ULL, "raw_ber_lane0"}, {217, ULL, "raw_ber_lane1"},
    {218, ULL, "raw_ber"}, {219, ULL, "effective_errors"}, {220, ULL, "effective_ber"}, {221, ULL, "symbol_errors"}, {222, ULL, "symbol_ber"}};

static void set_value(field_t *field, unsigned type, long long value) {
    field->type = type;
    field->value.ull = 0;
    if (type == UINT) field->value.uint = (unsigned)value;
    else if (type == SINT) field->value.sint = (int)value;
    else field->value.ull = (unsigned long long)value;
}
static nvmlReturn_t ecc_field(const device_t *device, field_t *field) {
    /* 3-6 totals; 7-17 volatile and 18-28 aggregate by place, corrected and uncorrected in turn (CBU uncorrected only) */
    static const char *const places[] = {"l1", "l2", "dram", "reg", "tex", "cbu"};
    unsigned long long value;
    unsigned at = field->id < 18 ? field->id - 7 : field->id - 18;
    nvmlReturn_t code = field->id < 7 ? ecc_total(device, (field->id - 3) % 2, field->id >= 5, &value)
                                      : ecc_at(device, at == 10 ? 1 : at % 2, field->id >= 18, places[at / 2], &value);
    if (!code) set_value(field, ULL, (long long)value);
    return code;
}
/* The old per-link counters: six links first, six more added later, each block ended by a total in its first part. */
static nvmlReturn_t old_link_field(const device_t *device, field_t *field) {
    static const struct { unsigned first, total, later; const char *what; } blocks[] = {
        {32, 38, 96, "crc_flit"}, {39, 45, 102, "crc_data"}, {46, 52, 108, "replay"}, {53, 59, 114, "recovery"},
        {148, 160, 154, "ecc_data"}, {84, 0, 132, "speed"}};
    long long value, sum = 0;
    nvmlReturn_t code = NOT_SUPPORTED;
    for (size_t at = 0; at < sizeof blocks / sizeof *blocks; at++) {
        unsigned link = field->id - blocks[at].first;
        if (blocks[at].total && field->id == blocks[at].total) {
            long long count = number_or(device, "nvlink.count", 0);
            for (link = 0; link < (unsigned)count; link++)
                if (!(code = link_number(device, link, blocks[at].what, &value))) sum += value;
            if (count && !code) set_value(field, ULL, sum);
            return count ? code : NOT_SUPPORTED;
        }
        if (field->id - blocks[at].later < 6) link = field->id - blocks[at].later + 6;
        else if (link >= 6) continue;
        if (!(code = link_number(device, link, blocks[at].what, &value))) set_value(field, ULL, value);
        return code == INVALID_ARGUMENT ? NOT_SUPPORTED : code;
    }
    return code;
}
static nvmlReturn_t field_value(const device_t *device, field_t *field) {
    char key[48];
    long long value;
    nvmlReturn_t code;
    entry_t *entry;
    snprintf(key, sizeof key, "field.%u.%u", field->id, field->scope);
    if (!(entry = entry_of(device, key))) {
        snprintf(key, sizeof key, "field.%u", field->id);
        entry = entry_of(device, key);
    }
    if (entry) {
        if (!(code = evaluate(entry, &value))) set_value(field, ULL, value);
        return code;
    }
    if (field->id >= 3 && field->id <= 28) return ecc_field(device, field);
    for (size_t at = 0; at < sizeof plain_fields / sizeof *plain_fields; at++) {
        if (plain_fields[at].id != field->id) continue;
        if (!(code = number(device, plain_fields[at].key, &value))) set_value(field, plain_fields[at].type, value);
        return code;
    }
    for (size_t at = 0; at < sizeof link_fields / sizeof *link_fields; at++) {
        if (link_fields[at].id != field->id) continue;
        if (!(code = link_number(device, field->scope, link_fields[at].key, &value))) set_value(field, link_fields[at].type, value);
        return code;
    }
    return old_link_field(device, field);
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, field_t *fields) {
    struct timespec now;
    unsigned newest;
    ENTER(device, "fields");
    clock_gettime(CLOCK_REALTIME, &now);
    newest = (unsigned)number_or(&machine, "field.newest", 308); /* what the driver of that age knows */
    for (int at = 0; at < count; at++) {
        fields[at].time_us = (long long)now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        fields[at].latency_us = 0;
        fields[at].code = !fields[at].id || fields[at].id >= newest ? INVALID_ARGUMENT : field_value(device, &fields[at]);
    }
    return OK;
}
