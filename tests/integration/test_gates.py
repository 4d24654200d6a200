"""KEP-5710's sequences of the gate off, on, off and on, on a real API server with its own objects.

The API server is killed and started with the gate as it is next, and so is the operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists
from reprieve.scenarios.embedded import EmbeddedStage
from tests.integration.control_plane import Binaries, ControlPlane
from tests.integration.group_plane import group_flags, group_plane, on_plane
from tests.scheduling.gates.test_gate_upgrade_downgrade import (
    GATE,
    NODES,
    Version,
    of_a_preemptor,
    of_victims,
)
from tests.scheduling.site import NAMESPACE, Site


@asynccontextmanager
async def version(plane: ControlPlane, folder: Path, gate: bool) -> AsyncIterator[Version]:
    """Start API server and operator with the gate; the objects stay."""
    plane.kill_api_server()
    plane.flags = {**plane.flags, "kube-apiserver": group_flags(on=gate)}
    plane.start_api_server()
    async with on_plane(plane, folder, NODES):
        client = connect(await load_connection(str(folder / "kubeconfig")), SystemClock())
        # There is nothing embedded here that a story of gates would ask for.
        found = Site(cast("EmbeddedStage", None), client, [])
        found = replace(found, operator_kubeconfig=folder / "operator.kubeconfig")
        try:
            team: dict[str, Any] = {"kind": "Namespace", "metadata": {"name": NAMESPACE}}
            with suppress(AlreadyExists):
                await found.create(team)
            await found.free_leases()
            await found.operator("--feature-gates", f"{GATE}={str(gate).lower()}")
            yield Version(found)
        finally:
            await found.stop()
            await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [of_a_preemptor, of_victims])
async def test_gates_off_on_off_and_on_again_on_a_real_api_server(
    sequence: Any, with_pod_groups: Binaries, tmp_path: Path
) -> None:
    with group_plane(with_pod_groups, tmp_path) as plane:
        await sequence(lambda gate: version(plane, tmp_path, gate))
