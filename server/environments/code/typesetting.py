r"""One spelling for what only typesetting tells apart. Pure functions on the text of an answer."""

import re
import unicodedata

_SYMBOLS = (
    ("−", "-"),
    ("–", "-"),
    ("×", r"\times "),
    ("·", r"\cdot "),
    ("π", r"\pi "),
    ("∞", r"\infty "),
    ("≤", r"\le "),
    ("≥", r"\ge "),
    ("±", r"\pm "),
    ("∪", r"\cup "),
    ("∩", r"\cap "),
    ("∅", r"\emptyset "),
)
_ROOT = re.compile(r"√\s*(?:(\d+(?:\.\d+)?|[A-Za-z])|\(([^()]*)\)|(?=\{)|)")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_VULGAR_FRACTION = re.compile("[¼½¾⅐-⅞]")

_SPACES = re.compile(r"\\[,;:!> ]|\\q?quad|\\hspace\{[^{}]*\}|~|\s+")
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])")
_WRAPPERS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox)\s*\{([^{}]*)\}")
_FRACTION_NAMES = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)")
_DEGREES = re.compile(r"(?<=[\d}])(?:\^?\{?\\(?:circ|degree)\}?|°)$")
_SPELLINGS = (
    (r"\varnothing", r"\emptyset"),
    (r"\$", ""),
    ("$", ""),
    ("€", ""),
    ("£", ""),
    (r"\%", "%"),
    (r"\lbrace", r"\{"),
    (r"\rbrace", r"\}"),
)


def as_latex(answer: str) -> str:
    """The same with LaTeX in place of Unicode's mathematics: `2√3` is `2\\sqrt{3}`, `x²` is `x^{2}`, `1½` is
    `1\\frac{1}{2}`."""
    if answer.isascii():
        return answer.strip()
    text = unicodedata.normalize("NFC", answer).strip()
    for old, new in _SYMBOLS:
        text = text.replace(old, new)
    text = _ROOT.sub(_root, text)
    text = _SUPERSCRIPT.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text)
    return _VULGAR_FRACTION.sub(_fraction, text)


def _root(found: re.Match[str]) -> str:
    operand = found[1] if found[1] is not None else found[2]
    return r"\sqrt" if operand is None else rf"\sqrt{{{operand}}}"


def _fraction(found: re.Match[str]) -> str:
    above, slash, below = unicodedata.normalize("NFKC", found[0]).partition("\N{FRACTION SLASH}")
    return rf"\frac{{{above}}}{{{below}}}" if slash and below else found[0]


def normalise(answer: str) -> str:
    """One spelling: LaTeX instead of Unicode, no dollar signs, single spaces, no sizes, no text wrappers, `\\frac`."""
    text = as_latex(answer)
    for old, new in _SPELLINGS:
        text = text.replace(old, new)
    text = _SIZES.sub("", text)
    text = _WRAPPERS.sub(r" \1 ", text)
    text = _FRACTION_NAMES.sub(r"\\frac", text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SPACES.sub(" ", text).strip()
    text = _DEGREES.sub("", text)
    return text.removesuffix(".").strip()
