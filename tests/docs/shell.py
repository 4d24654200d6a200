"""A shell in which the commands of a document are typed."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

from reprieve.scenarios.embedded import OPERATOR_NAMESPACE

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Shell:
    """A folder with a `kubeconfig` and a `bin`, and where the operator's telemetry is.

    `squeezed`: columns of answers are one space apart.
    """

    folder: Path
    port: int
    squeezed: bool = False

    async def run(self, command: str) -> str:
        """Return the output of a command that has to succeed without a complaint."""
        process = await asyncio.create_subprocess_shell(
            command.replace("localhost:8080", f"localhost:{self.port}"),
            cwd=self.folder,
            env={
                "KUBECONFIG": str(self.folder / "kubeconfig"),
                "HOME": str(self.folder),
                "PATH": f"{self.folder / 'bin'}:{os.defpath}",
                "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE,
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        assert (process.returncode, stderr.decode()) == (0, ""), command
        return stdout.decode()

    async def answers(self, command: str, expected: str) -> str:
        """Return the output of a command once it holds the text, or what it said last."""
        answer = ""
        for _ in range(int(PATIENCE_S / 0.25)):
            answer = await self.run(command)
            if self.squeezed:
                answer = re.sub(" +", " ", answer)
            if expected in answer:
                break
            await asyncio.sleep(0.25)
        return answer
