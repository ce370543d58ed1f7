"""`python -m deepx_graph`: the command line."""

import sys

from deepx_graph.cli.main import main

sys.exit(main())
