"""How serious a finding is, and why: in words for lawyers. The words state the usual rule and give no legal advice."""

from typing import Literal

from msgspec import Struct

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
SEVERITY_WORDS: dict[str, str] = {"high": "Serious", "medium": "Significant", "low": "To be assessed"}
SEVERITY_MEANING: dict[str, str] = {
    "high": "Observed facts that usually conflict with the requirement of consent, or with a choice that was made.",
    "medium": "Observed facts that often conflict with good practice or with the policy; they depend on the case.",
    "low": "Facts that a person has to assess, because the scan cannot know the purpose.",
}


class FindingKind(Struct, frozen=True):
    """A kind of finding: its severity, its title, and the rule behind it."""

    severity: Severity
    title: str
    why: str


_CONSENT = (
    "Article 5(3) of Directive 2002/58/EC requires consent before anything that is not strictly necessary is stored."
)
_REFUSAL = "Consent that was refused must have an effect: Articles 4(11) and 7 of Regulation (EU) 2016/679."

KINDS: dict[str, FindingKind] = {
    "set_before_consent": FindingKind("high", "Cookies before consent", _CONSENT),
    "set_after_rejecting": FindingKind("high", "Cookies set after refusal", _REFUSAL),
    "kept_after_rejecting": FindingKind("high", "Cookies kept after refusal", _REFUSAL),
    "set_despite_gpc": FindingKind(
        "high",
        "Global Privacy Control ignored",
        "The signal states an objection; some laws, such as the CCPA, oblige sites to respect it.",
    ),
    "consent_recorded_before_choice": FindingKind(
        "high",
        "Consent recorded before a choice",
        "Consent needs a clear affirmative act: Article 4(11) of Regulation (EU) 2016/679.",
    ),
    "consent_recorded_after_rejecting": FindingKind("high", "Consent recorded despite refusal", _REFUSAL),
    "no_way_to_reject": FindingKind(
        "high",
        "No way to refuse",
        "Consent must be freely given, so that refusing must be possible: Article 4(11) of Regulation (EU) 2016/679.",
    ),
    "reject_on_second_layer": FindingKind(
        "medium",
        "Refusing is harder than accepting",
        "Most supervisory authorities expect refusing to be as easy as accepting.",
    ),
    "no_banner": FindingKind("medium", "No consent banner", _CONSENT),
    "cloaked_third_party": FindingKind(
        "medium",
        "Third party under a name of the site",
        "The name hides the recipient of the data: see Articles 13 and 28 of Regulation (EU) 2016/679.",
    ),
    "lifetime_over_policy": FindingKind(
        "medium", "Lifetime above the policy", "The limit is that of the policy of this portfolio."
    ),
    "unknown_before_consent": FindingKind(
        "low", "Cookies of unknown purpose", "Only a person can say whether they are strictly necessary."
    ),
}
_OTHER = FindingKind("low", "Other finding", "This version of Floodmark does not know the kind of this finding.")


def kind_of(code: str) -> FindingKind:
    """Return the kind of a finding; a report may have a code of a newer version."""
    return KINDS.get(code, _OTHER)


def severity_of(code: str) -> Severity:
    """Return how serious findings of this code are."""
    return kind_of(code).severity
