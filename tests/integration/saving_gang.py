"""A process in which the pods of a gang ask for notice by the library, each in a thread.

`python -m tests.integration.saving_gang URL FOLDER`: the files of the folder are the pods' tokens.
Each pod asks until it is told, saves for up to two seconds, and reports that. When all have, the
process prints the Unix time at which the last one reported.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

from reprieve_notice import Notices
from reprieve_notice.http import HttpSource

__all__: list[str] = []


def _saves(url: str, token: Path, reported: list[float]) -> None:
    notices = Notices(HttpSource(url, token))
    notice = None
    while notice is None:
        notice = notices.due()
        if notice is None:
            time.sleep(0.05)
    time.sleep(random.Random(token.name).uniform(0, 2))
    while not notice.saved():
        time.sleep(0.2)
    reported.append(time.time())


def _main(url: str, folder: Path) -> None:
    reported: list[float] = []
    threads = [
        threading.Thread(target=_saves, args=(url, token, reported)) for token in folder.iterdir()
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(max(reported))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
