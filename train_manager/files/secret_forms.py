"""The forms of keys and tokens that are recognized without a name beside them."""

from __future__ import annotations

import re
from typing import Final

KINDS: Final = {
    "a token of Hugging Face": (r"\bhf_[A-Za-z0-9]{20,}", r"\bapi_org_[A-Za-z0-9]{20,}"),
    "a key of OpenAI, Anthropic or Stripe": (
        *(r"\bsk-[\w-]{16,}", r"\bwhsec_[A-Za-z0-9+/]{24,}"),
        *(rf"\b{kind}_{mode}_[A-Za-z0-9]{{16,}}" for kind in ("sk", "rk") for mode in ("live", "test")),
    ),
    "a token of GitHub": (*(rf"\bgh{of}_[A-Za-z0-9]{{20,}}" for of in "pousr"), r"\bgithub_pat_\w{20,}"),
    "a token of GitLab": (r"\bgl(?:pat|dt|ptt|rt|ft|soat|imt|agent|oas|cbt)-[\w-]{16,}",),
    "a token of Slack": (
        *(r"\bxox[abeprs]-[\w-]{10,}", r"\bxapp-\d-[\w-]{10,}"),
        r"\bhooks\.slack\.com/services/[\w/]{20,}",
    ),
    "a token of Discord or Telegram": (
        r"\bdiscord\.com/api/webhooks/\d+/[\w-]{40,}",
        r"\bdiscordapp\.com/api/webhooks/\d+/[\w-]{40,}",
        r"(?<=\d{8}):AA[\w-]{33}",
    ),
    "a key of AWS": (r"\bAKIA[0-9A-Z]{16}\b", r"\bASIA[0-9A-Z]{16}\b"),
    "a key of Google": (r"\bAIza[\w-]{35}", r"\bGOCSPX-[\w-]{20,}", r"\bya29\.[\w-]{20,}"),
    "a token of PyPI": (r"\bpypi-[\w-]{40,}",),
    "a token of npm": (r"\bnpm_[A-Za-z0-9]{36}\b",),
    "a key of SendGrid": (r"\bSG\.[\w-]{20,}\.[\w-]{20,}",),
    "a token of Databricks": (r"\bdapi[0-9a-f]{32}\b",),
    "a token of Replicate": (r"\br8_[A-Za-z0-9]{30,}",),
    "a key of NVIDIA": (r"\bnvapi-[\w-]{30,}",),
    "a key of Groq": (r"\bgsk_[A-Za-z0-9]{30,}",),
    "a key of Weights & Biases": (
        r"\bwandb_v\d_[\w-]{30,}",
        r"\bwandb[^\n]{0,40}?(?:login|[kK]ey)\b[^\n]{0,40}?\b([0-9a-f]{40})\b",
    ),
    "a key of a web service": (
        *(r"\bshpat_[0-9a-fA-F]{32}", r"\bshpss_[0-9a-fA-F]{32}", r"\bdop_v1_[0-9a-f]{32,}", r"\blin_api_\w{32,}"),
        *(r"\bfigd_[\w-]{32,}", r"\bntn_\w{40,}", r"\bglsa_\w{32,}", r"\bNRAK-[A-Z0-9]{27}", r"\bhvs\.[\w-]{24,}"),
        *(r"\bdt0c01\.[A-Z0-9]{24}\.", r"\bPMAK-[0-9a-f-]{50,}", r"\bdp\.pt\.\w{40,}", r"\bEAACEdEose0cBA\w{20,}"),
        *(r"\bsq0csp-[\w-]{40,}", r"\bsq0atp-[\w-]{20,}", r"\bkey-[0-9a-f]{32}\b", r"\bSK[0-9a-f]{32}\b"),
        *(r"\bxkeysib-[0-9a-f]{60,}", r"\bpplx-[A-Za-z0-9]{40,}", r"\bxai-[A-Za-z0-9]{60,}", r"\btgp_v1_[\w-]{30,}"),
        *(r"\blsv2_pt_[0-9a-f]{30,}", r"\bpscale_pw_[\w-]{30,}", r"\brubygems_[0-9a-f]{48}"),
        *(r"(?<=[0-9a-f]{32})-us\d{1,2}\b", r"\bAKC[A-Za-z0-9]{60,}", r"\bapi\.softlayer\.com/soap/v3[.1]*/\w{64}"),
    ),
    "a JSON web token": (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+",),
    "a private key": (
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----",
        r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}",
        r"\bLS0tLS1CRUdJTi(?:BSU0EgUFJJ|BQUklWQVRF|BFQyBQUklW|BPUEVOU1NI)[\w+/=]{20,}",
    ),
}
"""The kinds of tokens in words, and the forms of each; a form begins with letters that are searched first."""

# Lookbehinds and \b, which stand before the first letters of a form.
_NO_LETTERS: Final = re.compile(r"\(\?<=[^)]*\)|\\b")
# The fixed letters at the start of a form, up to its first class or repeat: str.find of these is far faster than the
# expression.
FORMS: Final = [
    (re.sub(r"\\(.)", r"\1", letters[0]), kind, re.compile(form, re.ASCII))
    for kind, forms in KINDS.items()
    for form in forms
    if (letters := re.match(r"(?:[\w /:-](?![*+?{])|\\\.)+", _NO_LETTERS.sub("", form))) is not None
]
"""The first letters of each form, its kind, and the form; a group in the form, if there is one, is the secret."""
