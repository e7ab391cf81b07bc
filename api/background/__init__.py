"""Tasks beside the requests: the ticker, the settlers, the exporter."""
