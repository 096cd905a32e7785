"""A fake GPU server for tests: an NVML that can refuse, hang and count, a root tree and commands that agree with it."""
