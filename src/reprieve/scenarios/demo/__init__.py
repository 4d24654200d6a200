"""The endless demo of `reprieve up`: four teams on twelve nodes, and stories that come round."""
