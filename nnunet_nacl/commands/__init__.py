"""One module for each group of commands: its options, and what they call, imported when it runs."""
