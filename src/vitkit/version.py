"""The version of the package. Modules import it from here: importing `vitkit` itself would make a cycle."""

__version__ = "0.1.0"
