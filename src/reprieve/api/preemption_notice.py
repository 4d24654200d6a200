"""`PreemptionNotice` (`reprieve.dev/v1alpha1`): that work is evicted soon, for its tenant.

One object for each unit that gets notice, in the namespace of the work, under the name that its
Disruption will have. The operator alone writes it; it is removed some minutes after its end. It
states nothing of other namespaces. Source: the contract of notices in `docs/notice-reference.md`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from reprieve.api.reprieve import API_VERSION, Metadata, ObjectRef

__all__ = [
    "NOTICE_AUDIENCE",
    "PreemptionNotice",
    "PreemptionNoticeSpec",
    "PreemptionNoticeStatus",
]

#: For whom the tokens are made that pods show to the operator.
NOTICE_AUDIENCE: Final = "reprieve.dev"


class PreemptionNoticeSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The notice as it was given. Immutable.

    `subject`: the object that is evicted, or the group that is evicted as a whole, without a uid
    then. `preemptor`: as people of this namespace may know it. Instants are RFC 3339 in UTC.
    """

    subject: ObjectRef
    plan_id: str
    plane: str
    rule: str
    preemptor: str
    deadline: str
    extend_until: str


class PreemptionNoticeStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far the unit is. `due`: when it is evicted at the latest, as far as is known.

    `speakers`: pods that are queried, of which `answered` have saved or ended. `saved_at`: when all
    had. `checkpoint` and `message`: what a pod stated last.
    """

    state: str
    due: str
    speakers: int = 0
    answered: int = 0
    saved_at: str = ""
    checkpoint: str = ""
    message: str = ""


class PreemptionNotice(msgspec.Struct, frozen=True, rename="camel"):
    """One unit with notice."""

    metadata: Metadata
    spec: PreemptionNoticeSpec
    status: PreemptionNoticeStatus
    api_version: str = API_VERSION
    kind: str = "PreemptionNotice"
