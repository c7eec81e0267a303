import sys

from vitkit.cli.main import main

sys.exit(main())
