"""What repeating the paper needs: studies, data sets, networks, logits, and the paper's part of a report."""
