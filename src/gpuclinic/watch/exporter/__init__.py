"""What plugs the agent into other people's monitoring: /metrics, textfile, OpenTelemetry, and rules and dashboards made from our own."""
