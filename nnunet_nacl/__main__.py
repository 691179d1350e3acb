"""``python -m nnunet_nacl``, where the command is not on the path."""

import sys

from nnunet_nacl.cli import main

sys.exit(main())
