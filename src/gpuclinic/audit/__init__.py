"""`audit`: is somebody mining on this server, is there a back door, what is weak. Read-only, by evidence, look-alikes first."""
