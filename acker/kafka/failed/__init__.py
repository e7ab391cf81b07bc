"""Failed records of a KafkaSpout: their retries, the reader that reads them again, dead letters, replays."""
