DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def value(numeral):
    """Return the value of a Roman numeral."""
    total = 0
    for letter in reversed(numeral):
        digit = DIGITS[letter]
        total += digit if digit >= previous else -digit
        previous = digit
    return total
