"""How a controller makes a pod: what the API server refuses is told on the owner, and tried again.

Source: the events `FailedCreate` of kube-controller-manager.
"""

from __future__ import annotations

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer
from kubelocal.machines.objects import AlreadyThere, Object, StoreError

__all__ = ["create_pod"]


async def create_pod(
    informer: Informer, recorder: Recorder, owner: Object, pod: Object, lead: str = "Error creating"
) -> Object:
    """Create a pod of this owner and return it; `lead`: how the event on a refusal begins.

    Raises:
        StoreError: it was refused; the machine tries again later.
    """
    try:
        return await informer.create("pods", pod)
    except AlreadyThere:
        raise
    except StoreError as refusal:
        recorder.warning(owner, "FailedCreate", f"{lead}: {refusal}")
        raise
