"""The handler of `docs/save-before-you-go.md`, run as it stands there against an operator."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.scheduling.test_notice_over_http import _LOWS, phase, training, until_told

pytestmark = pytest.mark.real_time  # sh and curl are processes of their own

PAGE = Path(__file__).parents[2] / "docs" / "save-before-you-go.md"


def script() -> str:
    (found,) = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert isinstance(found, str)
    return found


async def test_the_handler_of_the_docs_saves_and_its_pod_is_released(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH")
    handler, token, saved = tmp_path / "on-notice.sh", tmp_path / "token", tmp_path / "saved"
    handler.write_text(script(), encoding="utf-8")
    async with training(tmp_path) as (cluster, trainer):
        token.write_text(await trainer.token("low-3"))
        process = await asyncio.create_subprocess_exec(
            *("timeout", "120", "sh", str(handler), "touch", str(saved)),
            env={
                "PATH": os.environ["PATH"],
                "REPRIEVE_NOTICE_URL": trainer.address,
                "REPRIEVE_NOTICE_TOKEN": str(token),
            },
        )
        try:
            await cluster.gang()
            notice = await until_told(cluster, trainer)
            assert await asyncio.wait_for(process.wait(), 60) == 0
            assert saved.exists()
            assert await phase(cluster) == "Noticed"
            for name in _LOWS[:3]:
                await trainer.said(name, notice["id"], {"state": "saved"})

            assert await cluster.until_victims(4) == set(_LOWS)
        finally:
            if process.returncode is None:
                process.kill()
