"""`python -m text2grad` is `text2grad`."""

import sys

from text2grad.cli import main

sys.exit(main())
