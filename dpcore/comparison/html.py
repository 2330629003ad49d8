"""The steward's page: the mark PRIVATE on every page and screen, and its style."""

from collections.abc import Iterable
from html import escape

from dpcore.reporting import html
from dpcore.reporting.plots import colours

MARK = "PRIVATE - for the steward only - contains exact figures of the true table - do not publish"

_STYLE = (
    colours.variables(":root")
    + f"""
:root{{color-scheme:light dark;--private:#8a1030}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--panel);color:var(--ink);font:17px/1.55 system-ui,sans-serif}}
.private{{position:sticky;top:0;z-index:1;margin:0;padding:.5rem 1rem;background:var(--private);color:#fff;font-weight:700;text-align:center}}
main{{max-width:60rem;margin:0 auto;padding:2.5rem 1.5rem 5rem}}
h1{{font-size:2.1rem;line-height:1.2;margin:0 0 1.2rem;overflow-wrap:anywhere}}
h2{{font-size:1.35rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:1.2rem;border-top:1px solid var(--grid)}}
p,li{{max-width:46rem;overflow-wrap:anywhere}}
p{{margin:0 0 1rem}}
.kind{{color:var(--quiet);margin:0 0 .3rem;font-size:.95rem}}
.wide{{overflow-x:auto;margin:0 0 1.2rem}}
.side{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(21rem,100%),1fr));gap:1rem;margin:0 0 1.2rem}}
figure{{margin:0;break-inside:avoid}}
figcaption{{font-weight:600;overflow-wrap:anywhere}}
figcaption span{{color:var(--quiet);font-weight:400}}
table{{border-collapse:collapse;font-size:.92rem}}
caption{{text-align:left;color:var(--quiet);padding:0 0 .4rem;max-width:min(46rem,88vw)}}
th,td{{text-align:left;vertical-align:top;padding:.42rem 1.1rem .42rem 0;border-bottom:1px solid var(--grid)}}
td{{overflow-wrap:anywhere;min-width:5rem}}
th[scope=row]{{font-weight:600;min-width:8rem;overflow-wrap:anywhere}}
td.number{{white-space:nowrap}}
.number{{text-align:right;font-variant-numeric:tabular-nums}}
img{{max-width:100%;height:auto}}
.wide img{{max-width:none}}
:focus-visible{{outline:3px solid var(--spent);outline-offset:2px}}
.wide:focus-visible{{outline-offset:-3px}}
@property --fade{{syntax:"<length>";inherits:false;initial-value:0px}}
@keyframes fade{{from{{--fade:4rem}}to{{--fade:0px}}}}
@supports (animation-timeline:scroll(self inline)){{
.wide{{mask-image:linear-gradient(to left,transparent,#000 var(--fade));animation:fade linear both;animation-timeline:scroll(self inline)}}
}}
@media (max-width:40rem){{
main{{padding:2rem 1rem 4rem}}
table{{font-size:.85rem}}
th,td{{padding-right:.7rem}}
td,th[scope=row]{{min-width:0}}
td:not(.number){{min-width:8rem}}
th[scope=row]{{min-width:5.5rem}}
}}
@page{{margin:2cm 1.5cm;@top-center{{content:"{MARK}";font:700 9pt system-ui,sans-serif;color:#8a1030}}@bottom-center{{content:"{MARK}";font:700 9pt system-ui,sans-serif;color:#8a1030}}}}
@media print{{main{{max-width:none;padding:0}}.wide{{overflow:visible}}.wide img{{max-width:100%}}table{{width:100%;font-size:.75rem}}th,td{{padding-right:.6rem;overflow-wrap:anywhere}}td,td:not(.number),th[scope=row]{{min-width:0}}.private{{position:static;color:#8a1030;background:none;border:2px solid #8a1030}}tr{{break-inside:avoid}}body::after{{content:"PRIVATE";position:fixed;top:40%;left:0;right:0;text-align:center;font-size:7rem;font-weight:700;color:#8a1030;opacity:.12;transform:rotate(-30deg)}}}}
"""
)
"""Browsers without margin boxes for printed pages still repeat the large word behind the text on each of them."""


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole page, marked as private."""
    head = ['<meta name="robots" content="noindex, nofollow">']
    above = [f'<header class="private">{escape(MARK)}</header>']
    return html.document(f"PRIVATE: {title}", parts, style=_STYLE, head=head, above=above)
