"""Whether people who do not see, or see little, can use a page: axe-core's rules, run in the page, in dark and in light."""

from axe_playwright_python.sync_playwright import Axe

from tests.browser.chromium import SCHEMES, Visitor


def violations(visitor: Visitor, *, within: str | None = None, but: tuple[str, ...] = ()) -> list[str]:
    """Return what is wrong with the open page, or with a part of it, one line for each rule and scheme.

    Args:
        visitor: Whoever has the page open.
        within: The selector of the part to look at.
        but: Rules that are not ours to keep.
    """
    options = {"resultTypes": ["violations"], "rules": {rule: {"enabled": False} for rule in but}}
    found = []
    for scheme in SCHEMES:
        visitor.wear(scheme)
        results = Axe().run(visitor.page, context=within, options=options)
        for each in results.response["violations"]:
            where = "; ".join(str(node["html"]) for node in each["nodes"])
            found.append(f"{scheme}: {each['id']}: {each['help']}: {where}")
    return found
