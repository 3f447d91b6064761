"""Forty names that want to run: whoever writes a run, an attribute or a class may write these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.report.results import result
from veilrec.result import Result

RUN = "window.canary=1"
PAYLOADS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</ScRiPt ><ScRiPt>{RUN}</ScRiPt>",
    f"<!--<script>{RUN}</script>-->",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f'"><script>{RUN}</script>',
    f"'><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</template><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'"><img src=x onerror="{RUN}">',
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<math><mtext></table><mglyph><style><img src=x onerror={RUN}>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<video><source onerror={RUN}>",
    "<iframe srcdoc='<script>parent.canary=1</script>'>",
    "<iframe src='javascript:parent.canary=1'>",
    f"<a href='javascript:{RUN}'>x</a>",
    f'<a href="javascript:{RUN}" target="_self">x</a>',
    f'<a href="data:text/html,<script>opener.{RUN}</script>">x</a>',
    f"<form action='javascript:{RUN}'><button>x</button></form>",
    "<base href='http://127.0.0.1:9/'>",
    "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<span style='background:url(http://127.0.0.1:9/x)'>x</span>",
    f"' onmouseover='{RUN}",
    f'" autofocus onfocus="{RUN}',
    "{{ self.__init__.__globals__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}x{% endfor %}",
    "${window.canary=1}`;window.canary=1;//",
    "\\u003cscript\\u003ewindow.canary=1\\u003c/script\\u003e",
    "&lt;script&gt;window.canary=1&lt;/script&gt;&#x3C;img src=x onerror=window.canary=1&#x3E;",
    f"\u2028\u202e\x00\x08<b>%{{x}}</b><br>{RUN}//",
]
assert len(PAYLOADS) == len(set(PAYLOADS)) == 40


def hostile_run(text: str, protocol: str, attribute: str = "") -> tuple[str, Result]:
    """A run in which everything has this name, but its protocol and, where told, its attribute."""
    usual = result("laplace", 0)
    audit = dict(usual.privacy["veilrec"])
    entry = {**audit["attributes"]["gender"], **_attribute(text)}
    audit |= {
        "sees": text,
        "grants": [text],
        "threat": {"known": 0.2, text: text},
        "attributes": {attribute or text: entry},
        "controls": [{"control": text, "must_say": text, "passed": True, "attacker": text, "auc": None}],
        "uploads": [{"attribute": text, "points": [], "sentence": text}],
        "soundness": [{"kind": "constant", "reads": text, "sentence": text}],
        "membership": {text: audit["membership"]["rows"]},
    }
    settings = {
        **usual.settings,
        "defence": [{"name": text, text: text}],
        "model": {"name": text},
        text: {text: text},
    }
    ledger = {
        **usual.ledger,
        "statement": text,
        "notes": [text],
        "mechanisms": [{"defence": text, "part": text}],
    }
    return text, replace(
        usual,
        privacy={protocol: audit},
        settings=settings,
        ledger=ledger,
        stopped=text,
        fingerprint=text,
        environment={text: text},
        timing={text: 1.0, "total": 2.0},
        traffic={**usual.traffic, "by_kind": {"up": {text: 10}, "down": {text: 20}}},
    )


def _attribute(text: str) -> dict[str, Any]:
    usual = result("laplace", 0).privacy["veilrec"]["attributes"]["gender"]
    return {
        "classes": [text, f"{text}2"],
        "attackers": [
            {**usual["attackers"][0], "name": text, "reads": text, "family": text, "classifier": text}
        ],
        "verdict": {**usual["verdict"], "attacker": text, "sentence": text},
        "without_copies": {
            "left_out": 3,
            "verdict": {**usual["verdict"], "attacker": text, "sentence": text},
        },
        "parts": [{**usual["parts"][0], "part": text, "classifier": text}],
        "groups": [{**usual["groups"][0], "by": text, "group": text}],
        "floors": {text: usual["floors"]["majority"]},
    }
