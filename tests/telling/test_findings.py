"""What checks have found, as a table and as data."""

from __future__ import annotations

import json

import pytest

from train_manager.telling.findings import Coverage, Finding, Findings, FoundError

LEAK = Finding("batch leak", "error", "example 3 changes the output of example 0", "encoder.1", "reshape by example")
CLEAN = Coverage("batch leak", "12 of 12 changes ran, train mode")
BLIND = Coverage("input", "the data cannot be read twice", could_look=False)


def test_the_table_has_a_line_for_each_check_and_labels_below_it() -> None:
    assert str(Findings([LEAK], [CLEAN, BLIND])) == (
        "batch leak  error: example 3 changes the output of example 0\n"
        "              where  encoder.1\n"
        "              do     reshape by example\n"
        "            looked at: 12 of 12 changes ran, train mode\n"
        "input       could not look: the data cannot be read twice"
    )


def test_a_long_text_continues_below_its_beginning() -> None:
    cure = "give the parameter to an optimizer, " * 5
    lines = str(Findings([Finding("parameters", "error", "one is in none", cure=cure)])).splitlines()

    assert max(map(len, lines)) <= 100
    assert lines[1].index("give") == lines[2].index(lines[2].strip())


def test_a_check_that_has_found_nothing_is_clean_with_what_it_covered() -> None:
    assert str(Findings(covered=[CLEAN])) == "batch leak  clean: 12 of 12 changes ran, train mode"


def test_a_check_that_has_nothing_to_compare_is_not_called_clean_and_passes() -> None:
    findings = Findings(covered=[Coverage("initial loss", "the loss has none", answer="nothing to compare")])

    findings.require_none()
    assert str(findings) == "initial loss  nothing to compare: the loss has none"


def test_clean_findings_pass() -> None:
    Findings([Finding("batch leak", "note", "a norm mixes")], [CLEAN]).require_none()


@pytest.mark.parametrize("findings", [Findings([LEAK]), Findings(covered=[CLEAN, BLIND])])
def test_an_error_and_a_check_that_could_not_look_fail_with_the_table(findings: Findings) -> None:
    with pytest.raises(FoundError) as caught:
        findings.require_none()

    assert str(caught.value) == f"the checks are not clean\n{findings}"
    assert caught.value.findings is findings


def test_findings_of_two_checks_are_put_together() -> None:
    both = Findings([LEAK]) + Findings.not_looked("input", "the data cannot be read twice")

    assert list(both) == [LEAK]
    assert both.covered == (BLIND,)


def test_a_finding_is_the_same_after_json() -> None:
    finding = Finding("loss", "warning", "high", numbers={"loss": 9.5, "expected": 2.3})

    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding


def test_the_code_of_a_finding_stands_behind_its_text() -> None:
    finding = Finding("input", "error", "the labels are texts", "targets", code="text-labels")

    assert str(finding) == "error: the labels are texts [text-labels]\n  where  targets"
    assert finding.to_dict()["code"] == "text-labels"


def test_findings_are_data_for_programs() -> None:
    data = json.loads(json.dumps(Findings([LEAK], [BLIND]).to_dict()))

    assert data == {"is_clean": False, "findings": [LEAK.to_dict()], "covered": [vars(BLIND)]}
