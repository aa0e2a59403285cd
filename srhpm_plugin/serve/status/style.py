"""The page's style sheet, and the policy that allows it and nothing else."""

from __future__ import annotations

import base64
import hashlib

SHEET = """
:root { color-scheme: light dark; --back: #f7f7f5; --card: #fff; --line: #dcdcd6; --text: #1d1f21;
  --faint: #62666b; --ours: #1f6f5c; --other: #b9bdb8; --bad: #a3341f; --warm: #b4690e;
  --s0: #1f6f5c; --s1: #3b6fb5; --s2: #8a5bb0; --s3: #b4690e; --s4: #a3345f; }
@media (prefers-color-scheme: dark) { :root { --back: #141617; --card: #1d2022; --line: #34383b;
  --text: #e8e8e4; --faint: #9ea3a6; --ours: #59c2a4; --other: #4d5356; --bad: #f08c78;
  --warm: #e5a950; --s0: #59c2a4; --s1: #7eaae8; --s2: #bb97df; --s3: #e5a950; --s4: #e58cae; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  overflow-wrap: break-word;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; }
h1 { font-size: 1.35rem; margin: 0; letter-spacing: .01em; }
h2 { font-size: 1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1.02rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .35rem 0; }
a { color: var(--ours); }
.faint, figcaption, th { color: var(--faint); font-weight: 400; }
.small { font-size: .86rem; }
.push { margin-left: auto; }
.cards { display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .9rem 1rem; min-width: 0; }
.top { display: flex; gap: .5rem 1rem; align-items: baseline; flex-wrap: wrap; }
.big { font-size: 1.6rem; font-variant-numeric: tabular-nums; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem;
  margin: .6rem 0 0; }
.facts dt { color: var(--faint); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.badge { border: 1px solid currentColor; border-radius: 999px; padding: 0 .55rem; font-size: .8rem;
  color: var(--ours); white-space: nowrap; }
.badge.plain { color: var(--faint); }
.badge.bad { color: var(--bad); }
figure { margin: .8rem 0 0; }
svg { display: block; width: 100%; }
svg.bar { height: 14px; border-radius: 4px; background: var(--line); }
svg.steps { height: 46px; }
.f0 { fill: var(--s0); } .f1 { fill: var(--s1); } .f2 { fill: var(--s2); } .f3 { fill: var(--s3); }
.f4 { fill: var(--s4); } .fo { fill: var(--other); } .ft { fill: var(--line); }
.b0 { background: var(--s0); } .b1 { background: var(--s1); } .b2 { background: var(--s2); }
.b3 { background: var(--s3); } .b4 { background: var(--s4); } .bo { background: var(--other); }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px;
  margin-right: .35rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin-top: .35rem; }
.legend > span { min-width: 0; }
.numbers { display: flex; } .numbers span { flex: 1; text-align: center; font-size: .78rem;
  color: var(--faint); font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .45rem .9rem; vertical-align: top; }
tr + tr:not(.more) { border-top: 1px solid var(--line); }
tr.more td { padding-top: 0; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.name { overflow-wrap: anywhere; min-width: 10rem; }
details { margin-top: .6rem; } summary { cursor: pointer; color: var(--faint); }
ul { margin: .35rem 0 0; padding-left: 1.1rem; }
.trouble { border-left: 3px solid var(--bad); padding: .1rem .8rem; margin: .6rem 0;
  overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; }
@media (max-width: 40rem) { th, td { padding: .4rem .6rem; } .optional { display: none; }
  .push { margin-left: 0; }
  table, tbody { display: block; } tr { display: flex; flex-wrap: wrap; }
  th, td { flex: 1 1 0; } th:first-child { display: none; }
  td.name, tr.more td { flex: 1 0 100%; } td.name { padding-bottom: 0; } }
"""

_HASH = base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
