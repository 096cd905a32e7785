"""Watching a machine: sampling, history, rules with durations, alerts, exporters, the live view, and a job's flight recorder.

Stands on clinic and below report; docs/watch.md says how the parts fit.
"""
