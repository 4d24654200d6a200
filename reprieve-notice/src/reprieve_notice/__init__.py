"""Save before a Kubernetes job is preempted by Reprieve: request notice, report what is saved."""

from reprieve_notice.notices import Notice, Notices

__all__ = ["Notice", "Notices"]
