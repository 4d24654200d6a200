"""Start the kubectl plugin from an archive, or its completion if called by that name."""

import sys
from pathlib import PurePath

from reprieve.cli.kubectl_plugin import complete, plugin

if __name__ == "__main__":
    if PurePath(sys.argv[0]).name.startswith("kubectl_complete"):
        complete()
    else:
        plugin()
