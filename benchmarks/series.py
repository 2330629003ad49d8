"""Twelve months of retrosheet, released month by month, and questions about all of them together.

    python -m benchmarks.series --folder /dev/shm/retrosheet

Seeded releases with the plays of each month are made in the folder, unless they are there. Random counts over all months are asked of the
series, and compared with the table: how many intervals contain the truth, and how large the errors are beside those of the single months.
"""
