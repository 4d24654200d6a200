"""What belongs to a node: its kubelet, heartbeat, taints, devices and exporter."""
