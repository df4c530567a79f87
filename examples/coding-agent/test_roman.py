import unittest

from roman import value


class TestValue(unittest.TestCase):
    def test_value(self):
        for numeral, want in {"III": 3, "IV": 4, "XLII": 42, "MCMXCIV": 1994}.items():
            self.assertEqual(value(numeral), want, numeral)


if __name__ == "__main__":
    unittest.main()
