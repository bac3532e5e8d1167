#!/usr/bin/env python3
"""Profiles a CSV or TSV file, row by row: python3 profile_csv.py FILE"""
import csv
import sys

DISTINCT_LIMIT = 10_000


class Column:
    def __init__(self, name):
        self.name = name
        self.empty = self.numbers = self.total = 0
        self.distinct = set()
        self.smallest = self.largest = None
        self.example = ""

    def add(self, value):
        value = value.strip()
        self.total += 1
        if value == "":
            self.empty += 1
            return
        self.example = self.example or value
        if len(self.distinct) <= DISTINCT_LIMIT:
            self.distinct.add(value)
        try:
            number = float(value)
        except ValueError:
            return
        self.numbers += 1
        self.smallest = number if self.smallest is None else min(self.smallest, number)
        self.largest = number if self.largest is None else max(self.largest, number)

    def line(self):
        many = f">{DISTINCT_LIMIT}" if len(self.distinct) > DISTINCT_LIMIT else str(len(self.distinct))
        extent = "" if self.smallest is None else f", {self.smallest:g} to {self.largest:g}"
        return (
            f"{self.name!r}: {self.total - self.empty} filled, {self.empty} empty, {self.numbers} numbers{extent}, "
            f"{many} distinct, such as {self.example[:60]!r}"
        )


def encoding_of(path):
    with open(path, "rb") as file:
        head = file.read(1 << 20)
    if head.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    try:
        # The last character of a longer file may be cut.
        (head[:-4] if len(head) == 1 << 20 else head).decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = sys.argv[1]
    encoding = encoding_of(path)
    with open(path, newline="", encoding=encoding, errors="replace") as file:
        header = file.readline()
        delimiter = max(",;\t|", key=header.count)
        file.seek(0)
        rows = csv.reader(file, delimiter=delimiter)
        columns = [Column(name) for name in next(rows, [])]
        count = uneven = 0
        for row in rows:
            count += 1
            uneven += len(row) != len(columns)
            for column, value in zip(columns, row):
                column.add(value)
    print(f"{encoding}, delimiter {delimiter!r}, {count} rows, {len(columns)} columns, {uneven} uneven rows")
    for column in columns:
        print(column.line())


if __name__ == "__main__":
    main()
