"""Where a failure is forced: every step of a run, and the places within them that have private data at hand."""

ROUND = ["select", "measure", "update"]
STEPS = [
    "reserve",
    "check_rows",
    "ingest",
    "histogram",
    "begin",
    *ROUND,
    "sample",
    "publish",
    "settle",
    "report",
]

PLACES = (
    *(f"dpcore.runs.{'rounds:Rounds' if step in ROUND else 'synthesis:Synthesis'}.{step}" for step in STEPS),
    "dpcore.runs.synthesis:Synthesis.choose_limit",
    "dpcore.runs.synthesis:Synthesis.learn_sizes",
    "dpcore.tables.engines:ingest",
    "dpcore.tables.ingest.fingerprint:Fingerprint.version",
    "dpcore.tables.histogram:LocalHistogram.count",
    "dpcore.tables.histogram:Histogram.marginal",
    "dpcore.mechanisms.exponential:ExponentialMechanism.draw",
    "dpcore.mechanisms.noise:Noise.draw",
    "dpcore.ledger:Ledger.commit",
    "dpcore.release.publishing:_write_parquet",
    "flows.synthesize:publish_report",
)
