"""Start the kubectl plugin from an archive, or its completion by a first word of its own."""

import sys

from reprieve.cli.kubectl_plugin import complete, plugin

if __name__ == "__main__":
    if sys.argv[1:2] == ["__complete_plugin"]:
        del sys.argv[1]
        complete()
    else:
        plugin()
