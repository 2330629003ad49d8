"""The audit of persons with several rows notices what a canary person must not show."""

from dpcore.audit.run import audit_case


def test_a_canary_person_shows_what_was_charged_and_planted_bugs_show_more() -> None:
    audited = audit_case("person-rows", 1.0)
    assert audited.holds
    assert all(0.7 < finding.measured <= finding.charged for finding in audited.findings)
    assert {verdict.bug for verdict in audited.verdicts if verdict.caught} == {
        "rows counted as persons",
        "rows charged as one row",
        "constants by majority",
    }
