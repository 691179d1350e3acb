"""The commands: typed functions, of which docstring and signature make help and parser. Each imports what it runs."""
