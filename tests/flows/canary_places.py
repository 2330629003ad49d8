"""Where a failure is forced: every step of a run, and the places within them that have private data at hand."""

STEPS = [
    "reserve",
    "ingest",
    "histogram",
    "begin",
    "select",
    "measure",
    "update",
    "sample",
    "publish",
    "settle",
    "report",
]

PLACES = (
    *(f"dpcore.synthesis:Synthesis.{step}" for step in STEPS),
    "dpcore.synthesis:Synthesis.check_rows",
    "dpcore.engines:ingest",
    "dpcore.ingest.fingerprint:Fingerprint.version",
    "dpcore.histogram:LocalHistogram.count",
    "dpcore.histogram:Histogram.marginal",
    "dpcore.mechanisms.exponential:ExponentialMechanism.draw",
    "dpcore.mechanisms.gaussian:DiscreteGaussian.draw",
    "dpcore.ledger:Ledger.commit",
    "dpcore.release.publishing:_write_parquet",
    "flows.synthesize:publish_report",
)
