"""Which function runs a format: input and literal switches in, outcome out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reprieve.engine.idle.literal import LiteralSwitches
from tests.conformance import idle_decisions, idle_rules
from tests.conformance.world import Json

RUNNERS: dict[str, Callable[[Json, LiteralSwitches], Any]] = {
    "aggregation": idle_rules.run_aggregation,
    "api_version": idle_rules.run_api_version,
    "config_resolution": idle_rules.run_config_resolution,
    "controller_ref": idle_rules.run_controller_ref,
    "decision_evaluate": idle_decisions.run_evaluate,
    "decision_reconcile": idle_decisions.run_reconcile,
    "discovery": idle_rules.run_discovery,
    "duration_format": idle_rules.run_duration_format,
    "durations": idle_rules.run_durations,
    "has_gpu": idle_rules.run_has_gpu,
    "lease": idle_rules.run_lease,
    "metrics_scrape": idle_rules.run_metrics_scrape,
    "naming": idle_rules.run_naming,
    "owner_resolution": idle_rules.run_owner_resolution,
    "pending_gpu": idle_rules.run_pending_gpu,
    "pod_ownership": idle_rules.run_pod_ownership,
    "resources": idle_rules.run_resources,
    "resources_equal": idle_rules.run_resources_equal,
}
