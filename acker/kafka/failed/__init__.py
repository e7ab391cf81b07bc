"""Failed records: they wait, are read again, and are dead letters after their last attempt.

One work, two places. Spouts that keep ids (`acker.streams.spouts`) and a KafkaSpout share the wait for the
next attempt (`streams.spouts.backoff.wait`), the attempts of a record and their bounds
(`streams.sources.attempts`), the reason of a record that is gone (`streams.sources.rereads.gone`), dead
letters and their replays. The rest differs by where a record waits:

- There a record waits in the store, as an outcome that is not confirmed. All processes compute the same time
  for it, and only ids whose source has raised are in memory, in groups that are divided until the row that
  makes it raise stands alone. Any process may read a row, so the first stored answer counts.
- Here it waits in the memory of the one member that has its partition, in a queue by time: its offset is not
  committed, so after a crash the topic gives it again. The reader takes single records within a second of a
  poll, and one that has not come is taken again by itself.

A common queue would cost a KafkaSpout a call of the store for each failure, or other spouts their rows in a
crash.
"""
