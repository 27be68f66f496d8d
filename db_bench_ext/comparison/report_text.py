"""Numbers as the report writes them: three significant digits and a unit."""

NO_BREAK_SPACE = "\u00a0"


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated, without an exponent."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    decimals = digits - 1
    while decimals > 0 and abs(rounded) >= 10 ** (digits - decimals):
        decimals -= 1
    magnitude = abs(rounded)
    while magnitude < 1:
        magnitude *= 10
        decimals += 1
    text = f"{rounded:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, units: list[tuple[float, str]]) -> str:
    for factor, unit in units:
        # Compared after rounding, so that 999.9 ns reads 1 µs.
        if float(f"{value / factor:.3g}") >= 1:
            return significant(value / factor) + NO_BREAK_SPACE + unit
    factor, unit = units[-1]
    return significant(value / factor) + NO_BREAK_SPACE + unit


def time(nanoseconds: float | None) -> str:
    """A duration: 850 ns, 6.3 µs, 12 ms, 1.5 s."""
    if nanoseconds is None:
        return "–"
    return _scaled(nanoseconds, [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")])


def microseconds(value: float | None) -> str:
    """Microseconds per operation, as a bare number."""
    return "–" if value is None else significant(value)


def rate(per_second: float | None) -> str:
    """Operations a second, as a number with k or M."""
    if per_second is None:
        return "–"
    return _scaled(per_second, [(1e6, "M"), (1e3, "k"), (1, "")]).rstrip(NO_BREAK_SPACE)


def bandwidth(bytes_per_second: float) -> str:
    return _scaled(bytes_per_second, [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")])


def size(byte_count: float) -> str:
    """A size in bytes, in binary units."""
    return _scaled(byte_count, [(2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1, "B")])


def share(fraction: float | None) -> str:
    return "–" if fraction is None else significant(100 * fraction) + NO_BREAK_SPACE + "%"


def times(ratio: float) -> str:
    """A ratio: 1.3, 209, 0.75, 1/164."""
    if 0 < ratio < 0.1:
        return "1/" + significant(1 / ratio)
    return significant(ratio, 2 if ratio < 100 else 3)


def percentile(tail: float) -> str:
    """The percentile that leaves `tail` of all operations behind: 0.01 is 99 %."""
    return f"{100 * (1 - tail):.6f}".rstrip("0").rstrip(".") + NO_BREAK_SPACE + "%"


def count(number: int, noun: str) -> str:
    """1 replica, 3 replicas."""
    return f"{number:,}{NO_BREAK_SPACE}{noun}" + ("" if number == 1 else "s")
