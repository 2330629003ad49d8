"""The commented spec that `dpflow init` writes."""

STARTER = """\
# A release spec: the columns of the table, and the budget to spend on it. Check it with: dpflow check DATASET.yaml
dataset: DATASET                     # the ledger account that pays; open it once with:
                                     # dpflow ledger open DATASET --epsilon 10 --delta 1e-9 --unit row --neighbours add-remove

source: {path: DATASET.csv}          # CSV, Parquet or Arrow: a file, a folder, a pattern such as visits/*.parquet, or s3://bucket/visits
# source: {sql: select * from visits, url_env: CLINIC_DB}   # or a query; the environment variable holds the database URL

privacy:
  unit: row                          # the protected unit: row, or the column that identifies a person
  # max_rows_per_unit: 2             # with a person as unit: keep at most this many rows of each person; or auto
  # weight: {column: visits, max: 10}   # a column with each row's weight; larger weights are clipped to max
  neighbours: add-remove             # or replace-one, if the number of units is public
  epsilon: 1.0                       # the budget of this release
  delta: 1.0e-9                      # well below one over the number of people; 0 for pure differential privacy
  # expect_rows: [20000, 200000]     # measure the number of rows first, for 2 % of the budget, and stop before spending the rest
                                     # if the noisy total lies outside this range

# blocks: {column: joined, every: month, window: new}   # a separate budget for each month; each run reads only new months.
                                     # Open the account with: --blocks "month of joined"

# Only these columns are read and released. Declare them from what you know about the table, not by looking at the data:
# a value copied from the data into this file would be published without a charge.
universe:
  sex:    {type: categorical, values: [F, M], missing: true}      # keep nulls as nulls; missing: ["?"] also reads "?" as null
  age:    {type: integer, min: 0, max: 99}                        # every value; or bins of ten with width: 10; values outside are clipped
  member: {type: boolean}
  cost:   {type: number, min: 0, max: 10000, step: 0.01}          # or bins: edges: [0, 100, 500, 2000, 10000]
  joined: {type: date, min: 2025-01-01, max: 2026-12-31}          # or bins of the calendar with every: quarter
                                     # text dates are read as 2025-01-31; for others declare a format, such as format: "%m/%d/%Y", or a
                                     # list of formats: rows with dates in undeclared formats are dropped or counted as missing
  city:   {type: categorical, values: [north, south], outside: other}   # undeclared values share one cell
  # code: {type: categorical, values_from: icd9.txt, match: prefix}      # one value per line; 250.13 counts as 250
  # code: {type: categorical, discover: {most: 100, length: 6, share: 0.1}}   # or find the frequent values, for a tenth of the budget;
                                     # all other values count as other

workload:
  marginals: 2                       # the statistics to preserve: all 2-way marginals; or a list such as [[sex, age], [age, cost]],
                                     # whose entries may have weights: {columns: [age, cost], weight: 3}
  # target: member                   # only marginals with this column; its pairs with other columns are learned first
  # ranges: [age, joined]            # ordered columns for which range counts matter: up to a value, or between two values
# strategy: {name: mwem}             # adaptive | mwem | pmw; default: chosen by workload and universe
output: {path: releases, rows: noisy}
# engine: {name: dask, scheduler: "tcp://10.0.0.5:8786"}   # reads and counts a table too large for this machine
"""
