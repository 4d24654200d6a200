"""Names and values of labels in the forms that the API server checks: RFC 1123 and qualified names.

Source: apimachinery's validation; lengths are in characters, of which these forms are ASCII.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.untrusted import LONGEST_NAME, Form

__all__ = ["DNS_LABEL", "DNS_SUBDOMAIN", "LABEL", "LONGEST_LABEL"]

LONGEST_LABEL: Final = 63

_DNS: Final = r"[a-z0-9]++(?:-++[a-z0-9]++)*+"

#: A part of a name: lower-case letters, digits and `-`.
DNS_LABEL: Final = Form(_DNS, LONGEST_LABEL)
#: Such parts, joined by dots.
DNS_SUBDOMAIN: Final = Form(rf"{_DNS}(?:\.{_DNS})*+", LONGEST_NAME)
#: The name of a label without its prefix, or a label's value that is not empty.
LABEL: Final = Form(r"[A-Za-z0-9]++(?:[-_.]++[A-Za-z0-9]++)*+", LONGEST_LABEL)
