/* What every NVML function does that libnvml.c does not define: it is asked, can fail or hang as the scenario says
 * (by its full name), and is not supported. Weak, so that a real definition wins. */
#ifndef NVML_STUB_H
#define NVML_STUB_H
unsigned fake_nvml_unsupported(const void *device, const char *function);
#define STUB(name) __attribute__((weak)) unsigned name(void *device) { return fake_nvml_unsupported(device, #name); }
#endif
