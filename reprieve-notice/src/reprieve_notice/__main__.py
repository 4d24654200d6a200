"""`python -m reprieve_notice`: the command line."""

import sys

from reprieve_notice.command import main

sys.exit(main())
