"""The style sheet of the page: one column, light or dark as the reader's machine asks."""

from __future__ import annotations

CSS = """
:root{--paper:#fbfbfa;--card:#fff;--ink:#1d232b;--soft:#66707d;--grid:#e4e7ec;--edge:#e0e3e8;--heat:#1f6feb;--on:#fff;
--s0:#1f6feb;--s1:#d9541e;--s2:#148a5f;--s3:#8b4fc4;--s4:#a87b00;--s5:#cf3569;--s6:#6b4a3d;--s7:#6e7681;--right:#23a55a;
--wrong:#eb7814;--missed:#e12d46;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--paper:#12151a;--card:#1a1e25;--ink:#e6e9ee;--soft:#98a2b0;--grid:#2b313b;
--edge:#2a303a;--heat:#3f86f5;--s0:#5b9bff;--s1:#ff8a54;--s2:#3cc492;--s3:#bd8cf0;--s4:#dcb02f;--s5:#f2739d;--s6:#c69c8b;
--s7:#a0a9b5}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:18px;margin:40px 0 10px}
h3{font-size:14px;margin:18px 0 8px}
p{margin:6px 0;max-width:75ch;overflow-wrap:anywhere}
.soft,.none,small{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:20px 0 0}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:10px 14px;min-width:0}
.card b{display:block;font-size:24px;line-height:1.25;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));gap:12px}
.pairs{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(430px,100%),1fr));gap:12px}
figure{margin:0;background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:10px 12px;min-width:0}
figcaption{font-size:13px;color:var(--soft);margin-bottom:4px;overflow-wrap:anywhere}
figcaption b{color:var(--ink)}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg text.name{fill:var(--ink)}
svg text.on{fill:var(--on)}
path.rule{stroke:var(--grid);fill:none}
path.axis{stroke:var(--soft);fill:none}
path.mark{stroke:var(--ink);stroke-dasharray:3 3;fill:none}
svg text.told{paint-order:stroke;stroke:var(--card);stroke-width:4px}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.line.faint{stroke-width:1;opacity:.35}
.line.mean{stroke-width:2.6}
.cell{fill:var(--heat)}
.matrix{max-width:none;height:auto}
.fit{width:fit-content;max-width:100%}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:6px}
.pair img,figure>img{display:block;width:100%;height:auto;border-radius:6px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;margin:4px 0 0}
.legend i{display:inline-block;width:14px;height:3px;vertical-align:4px;margin-right:5px;border-radius:2px;
background:currentColor}
.key{margin-bottom:8px}.key i{height:10px;width:10px;vertical-align:-1px}
.scroll{overflow-x:auto;max-width:100%;-webkit-overflow-scrolling:touch}
.tall{max-height:560px;overflow-y:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;background:var(--card)}
th,td{padding:5px 12px;border-bottom:1px solid var(--edge);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}
th:first-child,td:first-child{text-align:left}
th.t{text-align:left}
td.t{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:110px}
.tall th{position:sticky;top:0;background:var(--card)}
.bar{display:inline-block;width:90px;height:8px;border-radius:4px;background:var(--grid);vertical-align:1px}
.bar i{display:block;height:8px;border-radius:4px;background:var(--heat)}
details{margin:12px 0}
summary{cursor:pointer;color:var(--soft)}
code{font:13px ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
footer{margin-top:44px;color:var(--soft);font-size:13px}
@media (max-width:600px){main{padding:18px 12px 40px}h1{font-size:22px}th,td{padding:5px 8px}}
"""
CSS += "".join(f".s{n}{{stroke:var(--s{n});color:var(--s{n})}}.dot.s{n}{{fill:var(--s{n})}}" for n in range(8))
CSS += """
.mean{stroke:var(--ink);color:var(--ink)}.dot.mean{fill:var(--ink)}.faint{stroke:var(--s0);color:var(--s0)}.dot.faint{fill:var(--s0)}
"""
