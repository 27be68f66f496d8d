"""matplotlib figures as SVG elements inside a page: coloured by the page's style sheet, so that one drawing serves the light
theme, the dark theme and paper; with real text; with tooltips that need no script."""

import io
import re
import xml.etree.ElementTree as ElementTree

# The colours that plots are drawn with, and the style sheet's names of them (report.css gives each theme's values).
# Series: Okabe and Ito's palette; parts of a processor's time: Tol's. Both are made for colour-blind readers.
COLOURS = {
    "text": "#1b1f24",
    "muted": "#59616b",
    "grid": "#dfe3e8",
    "offload": "#0072b2",
    "fanout": "#009e73",
    "cpu-polling": "#d55e00",
    "cpu-event": "#b5539c",
    "none": "#4a5058",
    "primary": "#8d98a5",
    "replicas": "#aa3377",
    "rnic": "#ccbb44",
    "noise": "#c3cad2",
}

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FONT = re.compile(r"font: ([0-9.]+px)[^;]*")  # its names are matplotlib's; the page has its own
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def _short_numbers(text: str) -> str:
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", text)


def _themed(style: str) -> str:
    for name, colour in COLOURS.items():
        style = style.replace(colour, f"var(--{name})")
    return _FONT.sub(r"font-size: \1", style)


def _add_tooltips(element: ElementTree.Element, texts: list[str]) -> None:
    """One text for the whole element, or one for each marker in it, in the order in which they were plotted."""
    markers = list(element.iter("use")) or [element]
    for marker, text in zip(markers, texts, strict=True):
        title = ElementTree.Element("title")
        title.text = text
        marker.insert(0, title)


def _shrink(element: ElementTree.Element) -> None:
    """Takes out the space between elements, and groups that group nothing."""
    for number, child in enumerate(list(element)):
        while child.tag == "g" and not child.attrib and len(child) == 1:
            child = child[0]
        element[number] = child
        _shrink(child)
    for each in (element, *element):
        each.tail = None
        if not (each.text or "").strip():
            each.text = None


def to_svg(figure, prefix: str, description: str, tooltips: dict[str, list[str]]) -> str:
    """The figure as one <svg> element for a page. `prefix` keeps its ids apart from other figures'; `description` is what a
    screen reader says; `tooltips` gives texts to artists by their gid."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    # Names without namespaces: HTML needs none, and no address of another host remains in the page.
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if not child.tag.startswith(_SVG) or child.tag == _SVG + "metadata":
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    for element in root.iter():
        if _XLINK_HREF in element.attrib:
            element.attrib["href"] = "#" + prefix + element.attrib.pop(_XLINK_HREF).removeprefix("#")
        if element.get("id") in tooltips:
            _add_tooltips(element, tooltips[element.get("id")])
        if "id" in element.attrib:
            element.attrib["id"] = prefix + element.attrib["id"]
        for name, value in element.attrib.items():
            if name in ("style", "clip-path"):
                value = _REFERENCE.sub(rf"url(#{prefix}\1)", _themed(value))
            if name not in ("id", "href"):
                element.attrib[name] = _short_numbers(value)
    used = {reference for element in root.iter() for value in element.attrib.values()
            for reference in _REFERENCE.findall(value)}
    used |= {element.attrib["href"][1:] for element in root.iter() if "href" in element.attrib}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    width, height = root.get("viewBox").split()[2:]
    _shrink(root)
    root.attrib = {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
