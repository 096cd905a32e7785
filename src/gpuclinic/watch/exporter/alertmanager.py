"""An example of Alertmanager's routes for our alerts."""

EXAMPLE = """\
# Alertmanager: one message for each fault of a server; criticals at once, the rest collected; what is milder is silent beside what is graver.
# Alerts come from Prometheus (gpuclinic export rules) or from the agent itself ([[alerts.channels]] kind = "alertmanager").
route:
  receiver: gpu-team
  group_by: [instance, component, alertname]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 12h
  routes:
  - matchers: ['severity="critical"']
    receiver: gpu-team-now
    group_wait: 5s
    repeat_interval: 4h
  - matchers: ['severity="info"']
    receiver: nobody
inhibit_rules:
- source_matchers: ['severity="critical"']
  target_matchers: ['severity=~"warning|info"']
  equal: [instance, alertname, gpu]
- source_matchers: ['severity="warning"']
  target_matchers: ['severity="info"']
  equal: [instance, alertname, gpu]
- source_matchers: ['alertname=~"GpuclinicAgentGone|GpuclinicSampleOld"']
  target_matchers: ['alertname=~"Gpuclinic.*"', 'alertname!~"GpuclinicAgentGone|GpuclinicSampleOld"']
  equal: [instance]
receivers:
- name: nobody
- name: gpu-team
  webhook_configs:
  - url: http://127.0.0.1:9/replace-with-yours
- name: gpu-team-now
  webhook_configs:
  - url: http://127.0.0.1:9/replace-with-yours
"""
