/* Events: "xid=3:79,5:48@0.5" (GPU:code, @ seconds after the wait began), "event=3:0x4000:1" (GPU:type:data).
 * Every set gets every event once; one added to the file while somebody waits arrives too. */

#define MAX_EVENT_SETS 16
typedef struct { int used; uint64_t types[MAX_GPUS]; unsigned delivered[2]; } event_set_t;
typedef struct { nvmlDevice_t device; unsigned long long type, data; unsigned gi, ci; } event_t;
static event_set_t event_sets[MAX_EVENT_SETS];

nvmlReturn_t nvmlEventSetCreate(event_set_t **out) {
    ENTER(&machine, "event_create");
    for (int at = 0; at < MAX_EVENT_SETS; at++) {
        if (event_sets[at].used) continue;
        memset(&event_sets[at], 0, sizeof event_sets[at]);
        event_sets[at].used = 1;
        *out = &event_sets[at];
        return OK;
    }
    return 23;
}
nvmlReturn_t nvmlEventSetFree(event_set_t *set) {
    ENTER(&machine, "event_free");
    set->used = 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *out) {
    ENTER(device, "event_types");
    *out = (unsigned long long)number_or(device, "event.types", 0x1f);
    return OK;
}
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, event_set_t *set) {
    ENTER(device, "event_register");
    if (types & ~(unsigned long long)number_or(device, "event.types", 0x1f)) return NOT_SUPPORTED;
    set->types[device->gpu] |= types;
    return OK;
}

/* The next event of one list that this set has not had; only past the given seconds where it has a delay. */
static int next_event(event_set_t *set, int which, double waited, event_t *out) {
    const char *list = text_of(&machine, which ? "event" : "xid");
    for (unsigned skip = 0; list && *list; skip++) {
        unsigned gpu = 0;
        unsigned long long type = 8, data = 0;
        const char *comma = strchr(list, ','), *at = strchr(list, '@');
        double delay = at && (!comma || at < comma) ? strtod(at + 1, NULL) : 0;
        int read = which ? sscanf(list, "%u:%lli:%lli", &gpu, (long long *)&type, (long long *)&data) : sscanf(list, "%u:%llu", &gpu, &data);
        if (skip >= set->delivered[which] && read >= 2) {
            if (waited < delay) return 0;
            set->delivered[which]++;
            if (gpu < MAX_GPUS && set->types[gpu] & type) {
                *out = (event_t){&gpus[gpu], type, data, 0xffffffffu, 0xffffffffu};
                return 1;
            }
        }
        list = comma ? comma + 1 : NULL;
    }
    return 0;
}
static nvmlReturn_t wait_event(event_set_t *set, event_t *out, unsigned timeout_ms, const char *function) {
    struct timespec begin, now;
    nvmlReturn_t code = enter(&machine, "event_wait", function);
    if (code) return code;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        double waited;
        clock_gettime(CLOCK_MONOTONIC, &now);
        waited = (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9;
        reload();
        if (next_event(set, 0, waited, out) || next_event(set, 1, waited, out)) return OK;
        if (waited * 1000 >= timeout_ms) return TIMEOUT; /* never earlier: a client would spin */
        pass_seconds(waited * 1000 + 200 > timeout_ms ? timeout_ms / 1000.0 - waited : 0.2);
    }
}
nvmlReturn_t nvmlEventSetWait_v2(event_set_t *set, event_t *out, unsigned timeout_ms) { return wait_event(set, out, timeout_ms, __func__); }
nvmlReturn_t nvmlEventSetWait(event_set_t *set, event_t *out, unsigned timeout_ms) {
    event_t full;
    nvmlReturn_t code = wait_event(set, &full, timeout_ms, __func__);
    if (!code) memcpy(out, &full, 24); /* the older struct knows no instances */
    return code;
}
