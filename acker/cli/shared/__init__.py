"""Parts that commands share: options, output, exit statuses, signals."""
