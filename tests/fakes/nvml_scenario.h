/* The scenario behind the fake NVML: a flat file of key=value lines, read again whenever it changes.
 *
 * "N.key" speaks of GPU N, "N.mig.M.key" of its MIG device M, "all.key" of every GPU, a bare key of the machine.
 * Values: a number (decimal or 0x...), text, "N/A" (not supported), "!15" (this call returns NVML code 15),
 * "2+1" (one more at every read in this process), "2+1/s" (one more each second since the scenario was written,
 * hence the same for every process that reads it). */
#ifndef NVML_SCENARIO_H
#define NVML_SCENARIO_H
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int nvmlReturn_t;
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, CORRUPTED_INFOROM = 14, GPU_IS_LOST = 15, RESET_REQUIRED = 16,
    VERSION_MISMATCH = 25, UNKNOWN = 999
};

#define MAX_GPUS 16
#define MAX_MIG 8
#define MAX_KEYS 16384
#define SLOTS 32768 /* a power of two, at least twice MAX_KEYS */

typedef struct { int gpu, mig; } device_t; /* mig is -1 for the whole GPU; gpu is -1 for the machine */
typedef device_t *nvmlDevice_t;
typedef struct { char *key, *value; long reads; } entry_t;

static entry_t entries[MAX_KEYS];
static int slots[SLOTS]; /* index into entries plus one */
static int entry_count;
static char *scenario_text;
static struct timespec scenario_time;
static off_t scenario_size;
static pthread_mutex_t scenario_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned hash_of(const char *text) {
    unsigned hash = 2166136261u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static int slot_of(const char *key) {
    unsigned slot = hash_of(key) & (SLOTS - 1);
    while (slots[slot] && strcmp(entries[slots[slot] - 1].key, key) != 0) slot = (slot + 1) & (SLOTS - 1);
    return (int)slot;
}

static void put(char *key, char *value) {
    int slot = slot_of(key);
    if (slots[slot]) { entries[slots[slot] - 1].value = value; return; } /* the last line wins */
    if (entry_count == MAX_KEYS) return;
    entries[entry_count].key = key;
    entries[entry_count].value = value;
    entries[entry_count].reads = 0;
    slots[slot] = ++entry_count;
}

static void parse(char *text) {
    char *rest = text, *line;
    memset(slots, 0, sizeof slots);
    entry_count = 0;
    while ((line = strsep(&rest, "\n"))) {
        char *equals;
        while (*line == ' ') line++;
        if (*line == '#' || !(equals = strchr(line, '='))) continue;
        *equals = 0;
        put(line, equals + 1);
    }
}

/* Reads the file again when its time or size changed. Old text is kept on purpose: another thread may still hold it. */
static int reload(void) {
    const char *path = getenv("FAKE_NVML_SCENARIO");
    struct stat status;
    FILE *file;
    int done = 0;
    if (!path || stat(path, &status)) return 0;
    pthread_mutex_lock(&scenario_lock);
    if (scenario_text && status.st_size == scenario_size && status.st_mtim.tv_sec == scenario_time.tv_sec &&
        status.st_mtim.tv_nsec == scenario_time.tv_nsec) {
        done = 1;
    } else if ((file = fopen(path, "r"))) {
        char *text = malloc((size_t)status.st_size + 1);
        size_t length = fread(text, 1, (size_t)status.st_size, file);
        text[length] = 0;
        fclose(file);
        scenario_text = text;
        scenario_time = status.st_mtim;
        scenario_size = status.st_size;
        parse(text);
        done = 1;
    }
    pthread_mutex_unlock(&scenario_lock);
    return done;
}

static entry_t *entry_at(const char *key) {
    int slot = slot_of(key);
    return slots[slot] ? &entries[slots[slot] - 1] : NULL;
}

/* The entry of a key for a device: its own line first, then that of all GPUs. A MIG device has only lines of its own. */
static entry_t *entry_of(const device_t *device, const char *key) {
    char full[160];
    entry_t *entry;
    if (!device || device->gpu < 0) return entry_at(key);
    if (device->mig >= 0) {
        snprintf(full, sizeof full, "%d.mig.%d.%s", device->gpu, device->mig, key);
        return entry_at(full);
    }
    snprintf(full, sizeof full, "%d.%s", device->gpu, key);
    if ((entry = entry_at(full))) return entry;
    snprintf(full, sizeof full, "all.%s", key);
    return entry_at(full);
}

static const char *text_of(const device_t *device, const char *key) {
    entry_t *entry = entry_of(device, key);
    return entry ? entry->value : NULL;
}

static double seconds_since_scenario(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(now.tv_sec - scenario_time.tv_sec) + (double)(now.tv_nsec - scenario_time.tv_nsec) / 1e9;
}

/* The code that a value stands for when it is no value: absent and N/A are "not supported", "!15" is 15. */
static nvmlReturn_t refusal(const char *value) {
    if (!value || !strcasecmp(value, "N/A")) return NOT_SUPPORTED;
    return value[0] == '!' ? (nvmlReturn_t)atoi(value + 1) : OK;
}

static nvmlReturn_t evaluate(entry_t *entry, long long *out) {
    nvmlReturn_t code = refusal(entry ? entry->value : NULL);
    char *end;
    double value, step;
    if (code) return code;
    if (!strncmp(entry->value, "0x", 2)) { *out = (long long)strtoull(entry->value, NULL, 16); return OK; }
    *out = strtoll(entry->value, &end, 10);
    if (*end != '+' && *end != '.') return OK;
    value = strtod(entry->value, &end);
    if (*end == '+') {
        step = strtod(end + 1, &end);
        value += step * (*end == '/' ? seconds_since_scenario() : (double)entry->reads++);
    }
    *out = (long long)value;
    return OK;
}

static nvmlReturn_t number(const device_t *device, const char *key, long long *out) {
    return evaluate(entry_of(device, key), out);
}

/* A number that has a default where the scenario says nothing; a value that stands for an error is the default too. */
static long long number_or(const device_t *device, const char *key, long long otherwise) {
    long long value;
    return number(device, key, &value) ? otherwise : value;
}

static double real_or(const device_t *device, const char *key, double otherwise) {
    const char *text = text_of(device, key);
    if (!text || !*text) return otherwise;
    return !strcmp(text, "inf") ? 1e9 : strtod(text, NULL);
}

static nvmlReturn_t string(const device_t *device, const char *key, char *out, unsigned size) {
    const char *value = text_of(device, key);
    nvmlReturn_t code = refusal(value);
    if (code) return code;
    if (!out) return INVALID_ARGUMENT;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

static void pass_seconds(double seconds) {
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) { until.tv_sec++; until.tv_nsec -= 1000000000L; }
    if (seconds > 2e-4) { while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {} return; }
    do clock_gettime(CLOCK_MONOTONIC, &now); /* a sleep would take longer than so short a call */
    while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

/* A call that hangs in the driver hears no signal but SIGKILL. */
static void hang(double seconds) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pass_seconds(seconds);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
#endif
