"""What runs beside the requests: the ticker, the settlers, the exporter."""
