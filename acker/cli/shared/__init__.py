"""What commands share: options, output, exit statuses, signals."""
