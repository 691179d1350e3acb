"""What repeating the paper needs: studies, data sets, networks, logits."""
