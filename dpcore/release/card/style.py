"""The style of the card: one text column, pictures side by side where there is room, light or dark as the reader prefers."""

from dpcore.reporting.plots import colours

STYLE = (
    colours.variables(":root")
    + """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:var(--panel);color:var(--ink);font:17px/1.55 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:3rem 1.5rem 5rem}
h1{font-size:2.1rem;line-height:1.2;margin:0 0 1.2rem;overflow-wrap:anywhere}
h2{font-size:1.35rem;line-height:1.3;margin:3rem 0 .8rem;padding-top:1.2rem;border-top:1px solid var(--grid)}
h3{font-size:1.05rem;margin:1.6rem 0 .5rem}
p,ul{max-width:44rem;margin:0 0 1rem;overflow-wrap:anywhere}
li{margin:0 0 .5rem}
.kind{color:var(--quiet);margin:0 0 .3rem;font-size:.95rem}
.promise{font-size:1.2rem;font-weight:600;border-left:4px solid var(--spent);padding-left:1rem}
.good{color:var(--good);font-weight:600;white-space:nowrap}
.fair{color:var(--fair);font-weight:600;white-space:nowrap}
.poor{color:var(--poor);font-weight:600;white-space:nowrap}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1.4rem;margin:0 0 1.2rem}
figure{margin:0;min-width:0}
figure img{width:100%}
figcaption{font-size:.95rem;margin:0 0 .4rem;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:0 0 1.2rem}
.wide img{max-width:none}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;color:var(--quiet);padding:0 0 .4rem;max-width:min(46rem,88vw)}
th,td{text-align:left;vertical-align:top;padding:.42rem 1.1rem .42rem 0;border-bottom:1px solid var(--grid);overflow-wrap:break-word}
td{overflow-wrap:anywhere}
td:not(.number,.rating){min-width:10rem}
th[scope=row]{font-weight:600;min-width:4rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{overflow-x:auto;padding:.9rem 1.1rem;border:1px solid var(--outline);border-radius:6px}
code{font:.88rem/1.5 ui-monospace,monospace}
img{max-width:100%;height:auto;vertical-align:top}
summary{cursor:pointer;margin:0 0 1rem;color:var(--quiet)}
:focus-visible{outline:3px solid var(--spent);outline-offset:2px}
.wide:focus-visible{outline-offset:-3px}
@property --fade{syntax:"<length>";inherits:false;initial-value:0px}
@keyframes fade{from{--fade:4rem}to{--fade:0px}}
@supports (animation-timeline:scroll(self inline)){
.wide{mask-image:linear-gradient(to left,transparent,#000 var(--fade));animation:fade linear both;animation-timeline:scroll(self inline)}
}
@media print{
main{max-width:none;padding:0}
.wide,pre{overflow:visible}
.wide img{max-width:100%}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
figure,tr{break-inside:avoid}
table{width:100%;font-size:.75rem}
th,td{padding-right:.6rem;overflow-wrap:anywhere}
td:not(.number,.rating),th[scope=row]{min-width:0}
details::details-content{content-visibility:visible;block-size:auto}
}
"""
)
